"""An autoencoder, trained by the Trainer of Lightning: its `forward` is never called."""

import hashlib

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader


class AutoEncoder(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
        self.decoder = nn.Linear(4, 6)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self.decoder(self.encoder(batch)), batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(batch)), batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


lightning.seed_everything(4, verbose=False)
model = AutoEncoder()
data = torch.randn(32, 6)
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(model, DataLoader(data, batch_size=4), DataLoader(data[:8], batch_size=4))
print("loss", float(trainer.callback_metrics["train_loss"]))
weights = b"".join(each.numpy().tobytes() for each in model.state_dict().values())
print("weights", hashlib.sha256(weights).hexdigest())
