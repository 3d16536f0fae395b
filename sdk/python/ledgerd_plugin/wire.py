"""The messages of the protocol, by their names: wire.Result. plugin.binpb is its descriptor."""
import functools
import pkgutil
from typing import Any

try:
    from google.protobuf import descriptor_pool, message_factory
except ImportError as err:
    raise ImportError("plugins in Python need protobuf and grpcio (Debian: python3-protobuf python3-grpcio)") from err

PACKAGE = "ledgerd.plugin.v1."
pool = descriptor_pool.DescriptorPool()
pool.AddSerializedFile(pkgutil.get_data(__package__, "plugin.binpb"))


def class_of(descriptor: Any) -> Any:
    if hasattr(message_factory, "GetMessageClass"):  # since protobuf 4.22
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


@functools.lru_cache(maxsize=None)
def __getattr__(name: str) -> Any:
    if not name[0].isupper():
        raise AttributeError(name)
    return class_of(pool.FindMessageTypeByName(PACKAGE + name))
