"""A transformer, trained by the Trainer of Hugging Face."""

import hashlib
import sys
import tempfile

import torch
import transformers

transformers.set_seed(3)
config = transformers.BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=32, num_labels=3, max_position_embeddings=16,
)  # fmt: skip
model = transformers.BertForSequenceClassification(config)
texts = torch.randint(50, (24, 10))
data = [{"input_ids": text, "labels": int(text.sum()) % 3} for text in texts]
with tempfile.TemporaryDirectory() as directory:
    arguments = transformers.TrainingArguments(
        directory, num_train_epochs=2, per_device_train_batch_size=4, logging_steps=2,
        eval_strategy="epoch", save_strategy="no", report_to="none", disable_tqdm=True,
        use_cpu=True,
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8])
    trainer.train()
for entry in trainer.state.log_history:
    for key in ("loss", "eval_loss"):
        if key in entry:
            print(key, entry[key])
weights = b"".join(each.numpy().tobytes() for each in model.state_dict().values())
print("weights", hashlib.sha256(weights).hexdigest())
sys.exit(0)
