"""The policy: a model, its tokenizer, and the chat format that turns messages into ids and ids into actions."""
