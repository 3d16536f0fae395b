import os
from dataclasses import dataclass, field

from ledgerd_plugin import Failure, Item, Plugin


@dataclass
class Config:  # what a machine allows and has (--with)
    max_bytes: int = field(default=100_000_000, metadata={"doc": "size of the largest file that is taken", "min": 1})


@dataclass
class Input:  # what is to be done (--set); the command line fills path
    path: str = field(metadata={"doc": "the text file", "input": "file", "min": 1})


@dataclass
class Output:
    lines: int = 0
    words: int = 0


plugin = Plugin("sample", "0.1.0", input=Input, config=Config, output=Output, match=["*.txt", "*.md"],
                doc="Counts the lines and words of text files.")


@plugin.work
def count(item: Item[Config, Input]) -> Output:
    """Works one item: what it returns is the output, an exception decides how the attempt ends."""
    size = os.stat(item.payload.path).st_size  # a plain exception: tried again later
    if size > item.config.max_bytes:
        raise Failure(f"it has {size} bytes, at most {item.config.max_bytes}", code="too_large", permanent=True)
    output = Output()
    with open(item.payload.path, "rb") as file:
        for line in file:
            item.check()  # cancelled, out of time, or ledgerd stops
            output.lines += 1
            output.words += len(line.split())
            item.progress(file.tell(), size, "bytes")
    return output
