"""Tidegate's engine: turns tokens into tokens, fast.

Two processes. The server (HTTP, tokenizer) never imports torch; the runtime does nothing but steps. Between them: link.
    server -> link <- runtime -> core
                             \\-> model -> kernels        files: read by server and model, standard library only
"""
