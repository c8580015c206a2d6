"""HTTP and text. Law: link, core.request, files, the tokenizer; no torch, and never runtime, model or kernels."""
