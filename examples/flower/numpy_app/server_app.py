"""What the server does: average updates by FedAvgM. Of Croupier there is one statement, around the strategy."""

import os

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvgM

from croupier.flower import CroupierStrategy, RemoteMaskAnalyzer

from .task import Model, public_images

app = ServerApp()
DEFAULTS = {"num-server-rounds": 4, "devices": 400, "epsilon": 8.0, "delta": 1e-4, "clip": 0.5}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train a model and print how it does on public images."""
    config = DEFAULTS | context.run_config
    strategy = CroupierStrategy(
        FedAvgM(server_learning_rate=2.0, server_momentum=0.5),
        epsilon=config["epsilon"],
        delta=config["delta"],
        users=config["devices"],
        rounds=config["num-server-rounds"],
        clip=config["clip"],
        neighbours="zero-out",
        analyzer=RemoteMaskAnalyzer(os.environ["CROUPIER_MASK_URL"], bytes.fromhex(os.environ["CROUPIER_MASK_KEY"])),
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Model().arrays()),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=lambda number, arrays: MetricRecord({"accuracy": Model(arrays).accuracy(*public_images())}),
    )
    print(f"accuracy on public images: {Model(result.arrays).accuracy(*public_images()):.3f}", flush=True)
