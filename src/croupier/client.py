"""What runs on a device: the public way to `croupier.service.client.client`. It needs the plain package, not the extra `service`.

from croupier.client import Client

client = Client("https://shuffler.example", token, analyzer_key, folder="~/.croupier", max_epsilon=1.0, max_delta=1e-6)
client.take_part(x, y)       # once, or after each `client.round()` that is new
"""

from .service.client.budget import DeviceBudget
from .service.client.client import Client
from .service.net.http import ServerError
from .service.wire.task import RefusedTaskError

__all__ = ["Client", "DeviceBudget", "RefusedTaskError", "ServerError"]
