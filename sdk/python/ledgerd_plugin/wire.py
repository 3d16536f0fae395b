"""The messages of the protocol. plugin.binpb is its descriptor."""
import pkgutil
import sys
from typing import Any

try:
    from google.protobuf import descriptor_pool, message_factory
except ImportError:
    raise ImportError(f"{sys.executable} has no protobuf: {sys.executable} -m pip install protobuf grpcio cryptography "
                      "(packages of Debian are for /usr/bin/python3)") from None

pool: Any = descriptor_pool.DescriptorPool()
pool.AddSerializedFile(pkgutil.get_data(__package__, "plugin.binpb"))
service = pool.FindServiceByName("ledgerd.plugin.v1.Plugin")


def class_of(descriptor: Any) -> Any:
    if hasattr(message_factory, "GetMessageClass"):  # since protobuf 4.22
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


Item, Result, Progress, PluginMessage, DescribeResponse, ConfigureResponse, CheckHealthResponse, DrainResponse = (
    class_of(service.file.message_types_by_name[name]) for name in (
        "Item", "Result", "Progress", "PluginMessage", "DescribeResponse", "ConfigureResponse", "CheckHealthResponse",
        "DrainResponse"))
