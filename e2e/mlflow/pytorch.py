"""What somebody who trains with PyTorch does with the plain mlflow client, from outside and in a job.

Each part says "seen: ..." once it has checked what came back.
"""

import os
import sys

import lightning
import mlflow
import numpy
import torch
from mlflow import MlflowClient

inside = "MLFLOW_RUN_ID" in os.environ
model_name = sys.argv[1]
client = MlflowClient()
torch.manual_seed(0)
x = torch.rand(64, 4)
y = x.sum(dim=1, keepdim=True)
name = "artifact_path" if mlflow.__version__.startswith("2.") else "name"


def seen(what):
    print("seen: " + what, flush=True)


class Linear(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, batch):
        return self.layer(batch)

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def autolog():
    mlflow.pytorch.autolog(registered_model_name=model_name)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16)
    trainer = lightning.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    with mlflow.start_run() as run:
        model = Linear()
        trainer.fit(model, data)
    mlflow.pytorch.autolog(disable=True)
    back = client.get_run(run.info.run_id)
    losses = [m.value for m in client.get_metric_history(run.info.run_id, "train_loss")]
    assert len(losses) >= 5 and losses[-1] < losses[0], losses
    assert back.data.params["epochs"] == "5" and back.data.params["optimizer_name"] == "SGD", back.data.params
    assert "model_summary.txt" in [f.path for f in client.list_artifacts(run.info.run_id)], back
    loaded = mlflow.pytorch.load_model("models:/%s/1" % model_name)
    with torch.no_grad():
        assert torch.allclose(loaded(x), model(x))
    seen("autolog of lightning, with its metrics, parameters and model")


def log_model():
    some = x[:4].numpy()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    with mlflow.start_run() as run:
        mlflow.pytorch.log_model(model, registered_model_name=model_name, input_example=some, **{name: "net"})
        mlflow.pytorch.log_state_dict(model.state_dict(), artifact_path="weights")
    loaded = mlflow.pyfunc.load_model("models:/%s/2" % model_name)
    with torch.no_grad():
        assert numpy.allclose(loaded.predict(some), model(x[:4]).numpy(), atol=1e-6)
    weights = mlflow.pytorch.load_state_dict("runs:/%s/weights" % run.info.run_id)
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items()), weights
    seen("a torch model and its weights, logged, registered and loaded")


if not inside:
    mlflow.set_experiment("torch")
autolog()
log_model()
