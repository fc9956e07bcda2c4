"""A tokenizer that takes each byte for a token."""


class Encoding:
    n_vocab = 256

    def encode(self, text, allowed_special=()):
        return list(text.encode("utf-8"))

    def decode(self, tokens):
        return bytes(t % 256 for t in tokens).decode("utf-8", "replace")


def get_encoding(name):
    return Encoding()
