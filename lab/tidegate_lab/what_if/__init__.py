"""`tidegate simulate`: what a service would do with some traffic, shown to people.

Law: reads files and prints; what happens in virtual time is `simulate`'s business, which knows nothing of this.
"""
