"""A plugin that writes a line for each item, and waits with some until a file is there, for tests that kill it."""
import os
import time
from dataclasses import dataclass

from ledgerd_plugin import Plugin


@dataclass
class Config:
    effects: str
    waits: str = ""  # keys, with commas between


@dataclass
class Input:
    thing: str


plugin = Plugin("lines", "0.1.0", input=Input, config=Config, doc="Writes lines.")


@plugin.work
def work(item):
    fd = os.open(item.config.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)  # a line is there as a whole or not at all
    os.write(fd, f"{os.getpid()} {item.key}\n".encode())
    os.close(fd)
    while item.key in item.config.waits.split(",") and not os.path.exists(f"{item.config.effects} {item.key}"):
        time.sleep(0.01)
    return len(item.payload.thing)
