"""A plugin that writes a line for each item, for tests that kill it."""
import os
from dataclasses import dataclass

from ledgerd_plugin import Plugin


@dataclass
class Config:
    effects: str


@dataclass
class Input:
    thing: str


plugin = Plugin("lines", "0.1.0", input=Input, config=Config, doc="Writes lines.")


@plugin.work
def work(item):
    fd = os.open(item.config.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)  # a line is there as a whole or not at all
    os.write(fd, f"{os.getpid()} {item.key}\n".encode())
    os.close(fd)
    return len(item.payload.thing)
