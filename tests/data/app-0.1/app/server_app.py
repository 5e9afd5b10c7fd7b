"""The server: asynchronous training, evaluated on the task's test data."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from app.task import make_task
from fadas.flower import AsyncStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    task = make_task(config)
    module = task.module(int(config["seed"]))
    trains = {name: p.requires_grad for name, p in module.named_parameters(remove_duplicate=False)}
    # what is trained travels, and buffers (BatchNorm's statistics); frozen weights every node has from its own task
    initial = ArrayRecord({name: v for name, v in module.state_dict().items() if trains.get(name, True)})

    def evaluate(step: int, arrays: ArrayRecord) -> MetricRecord:
        module.load_state_dict(arrays.to_torch_state_dict(), strict=False)
        return MetricRecord(task.evaluate(module))

    strategy = AsyncStrategy.from_run_config(config, reply="delta", trainable=lambda name: trains.get(name, False))
    strategy.start(grid, initial, num_rounds=int(config["num-server-rounds"]), evaluate_fn=evaluate)
