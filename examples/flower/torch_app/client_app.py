"""What a device does: train on its own images. Of Croupier there is one line, the mod."""

import os

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from croupier.flower import CroupierMod

from .task import Model, images_of

KEY = bytes.fromhex(os.environ["CROUPIER_MASK_KEY"])  # the owner's word on who opens masks
app = ClientApp(mods=[CroupierMod(KEY, max_epsilon=8.0, max_delta=1e-4, max_epsilon_if_watched=40.0)])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that came on this device's images."""
    model = Model(message.content["arrays"])
    images, digits = images_of(context.node_config["partition-id"])
    loss = model.train(images, digits)
    metrics = MetricRecord({"num-examples": len(images), "loss": loss})  # the mod drops them
    return Message(RecordDict({"arrays": ArrayRecord(model.arrays()), "metrics": metrics}), reply_to=message)
