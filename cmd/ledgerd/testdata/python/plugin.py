"""A plugin that writes a line for each item, and waits in the first attempts of some, for tests that kill it."""
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
    if item.attempt == 1 and item.key in item.config.waits.split(","):
        time.sleep(600)
    return len(item.payload.thing)
