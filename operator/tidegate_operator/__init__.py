"""Tidegate's operator: makes the cluster match each InferenceService, and chooses the number of replicas.

handlers -> reconcile -> world  -> observed, resource
                    \\-> decide -> observed, resource          decide and world never meet
"""
