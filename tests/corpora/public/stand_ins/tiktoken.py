"""tiktoken, without its downloaded vocabulary: a token for each byte."""

from __future__ import annotations

from collections.abc import Collection, Sequence


class Encoding:
    """What `get_encoding` gives."""

    n_vocab = 50257
    eot_token = 50256

    def encode(self, text: str, *, allowed_special: Collection[str] = ()) -> list[int]:
        """The bytes of the text."""
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of these tokens; those that are no bytes are shown as a replacement character."""
        return "".join(chr(token) if token < 256 else "\N{REPLACEMENT CHARACTER}" for token in tokens)


def get_encoding(encoding_name: str) -> Encoding:
    """The same encoding, whatever the name."""
    return Encoding()
