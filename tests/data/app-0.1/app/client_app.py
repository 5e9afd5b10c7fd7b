"""A node: trains the model it is sent on its own data and answers with what has changed."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from app.task import local_training, make_task
from fadas.client import train
from fadas.ledger import Job
from fadas.model import FlatModule, Model

app = ClientApp()


@app.train()
def train_(message: Message, context: Context) -> Message:
    config, asked = context.run_config, message.content["config"]
    task = make_task(config, context.node_config)
    flat = FlatModule(task.module(int(config["seed"])))
    sent = message.content["arrays"].to_torch_state_dict()
    flat.module.load_state_dict(sent, strict=False)  # frozen weights are not sent: they are here already
    partition = int(context.node_config.get("partition-id", asked["fadas-client"])) % len(task.clients)
    job = Job(asked["fadas-job"], partition, 0)  # its number seeds the shuffling
    update = train(flat, task, local_training(config), asked["fadas-seed"], job, flat.read())
    changed = flat.state_dict(Model(update.delta, update.buffers))
    arrays = ArrayRecord({name: changed[name] for name in sent})
    metrics = MetricRecord({"train_loss": update.metrics["loss"], "num-examples": update.examples})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
