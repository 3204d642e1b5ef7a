"""Training loops in Python, to compare with: contender.py WORKLOAD VARIANT FOLDER; ../drive.py starts it.

FOLDER holds what `contender --files FOLDER WORKLOAD` writes. Every framework trains the same torch.nn.Module on ready
batches with torch's optimizer (Keras: its own), and everything optional is switched off: what is left is its loop.
"""
import logging
import os
import sys
import tempfile
import warnings

os.environ.update(KERAS_BACKEND="torch", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")
warnings.filterwarnings("ignore")

import torch  # noqa: E402

import common  # noqa: E402


def pytorch(**of_optimizer):
    def make(work):
        optimizer = work.optimizer(**of_optimizer)
        work.net.train()

        def train(steps):
            for x, y in work.batches(steps):
                optimizer.zero_grad()
                common.loss_of(work.net(x), y).backward()
                optimizer.step()

        return train

    return make, {}


def compiled():
    """torch.compile of the whole step: the gather of a batch, forward, backward and update in one graph."""
    import torch._dynamo.config

    torch._dynamo.config.trace_autograd_ops = True  # autograd.grad becomes part of the graph

    def make(work):
        net = work.net.net.train()  # not the probe: a compiled step does not enter it
        parameters = list(net.parameters())
        update = common.update_in_place(work.rule, parameters)

        @torch.compile(fullgraph=True)
        def step(rows):
            x, y = work.input.index_select(0, rows), work.target.index_select(0, rows)
            update(torch.autograd.grad(common.loss_of(net(x), y), parameters))

        def train(steps):
            for number in range(work.done, work.done + steps):
                work.net.note()
                step(work.rows_of(number))

        return train

    return make, {}


def jax():
    import jax_step  # in a process of its own: it must be told the threads before jax is imported

    return jax_step.make, {"JAX": jax_step.jax.__version__}


def composer():
    import composer
    from composer.models import ComposerModel

    class Model(ComposerModel):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, batch):
            return self.net(batch[0])

        def loss(self, outputs, batch):
            return common.loss_of(outputs, batch[1])

    def make(work):
        trainer = composer.Trainer(model=Model(work.net), optimizers=work.optimizer(), device="cpu", progress_bar=False)

        def train(steps):
            trainer.fit(train_dataloader=work.batches(steps), duration=f"{steps}ba", reset_time=True)

        return train

    return make, {"Composer": composer.__version__}


def lightning():
    import lightning
    import lightning.pytorch as pl

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(pl.LightningModule):
        def __init__(self, work):
            super().__init__()
            self.net, self.optimizer = work.net, work.optimizer()

        def training_step(self, batch, _):
            return common.loss_of(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return self.optimizer

    def make(work):
        module = Module(work)

        def train(steps):
            pl.Trainer(max_steps=steps, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                       enable_progress_bar=False, enable_model_summary=False).fit(module, work.batches(steps))

        return train

    return make, {"Lightning": lightning.__version__}


def transformers():
    import transformers

    transformers.logging.set_verbosity_error()

    class Model(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x, labels):
            logits = self.net(x)
            return {"loss": common.loss_of(logits, labels), "logits": logits}

    class Named(common.Batches):
        def __iter__(self):
            return ({"x": x, "labels": y} for x, y in super().__iter__())

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return self.batches

    def make(work):
        model, optimizer = Model(work.net), work.optimizer()
        folder = tempfile.mkdtemp()

        def train(steps):
            arguments = transformers.TrainingArguments(
                output_dir=folder, max_steps=steps, per_device_train_batch_size=work.batch_size, use_cpu=True,
                save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True, max_grad_norm=0.0,
                lr_scheduler_type="constant", dataloader_pin_memory=False, remove_unused_columns=False)
            trainer = Trainer(model=model, args=arguments, optimizers=(optimizer, None))
            trainer.batches = Named(work, steps)
            trainer.train()

        return train

    return make, {"Transformers": transformers.__version__}


def keras():
    import keras

    def make(work):
        if work.rule == "adamw":
            optimizer = keras.optimizers.AdamW(common.ADAMW["lr"], common.ADAMW["weight_decay"], epsilon=1e-8)
        else:
            optimizer = keras.optimizers.SGD(common.SGD["lr"], momentum=common.SGD["momentum"],
                                             weight_decay=common.SGD["weight_decay"])
        model = keras.Sequential([keras.layers.TorchModuleWrapper(work.net)])
        model.compile(optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      jit_compile=False)

        def train(steps):
            batches = torch.utils.data.DataLoader(common.BatchDataset(work, steps), batch_size=None)
            model.fit(batches, epochs=1, verbose=0)

        return train

    return make, {"Keras": keras.__version__}


VARIANTS = {
    "pytorch": pytorch,
    "pytorch_fused": lambda: pytorch(fused=True),
    "compiled": compiled,
    "jax": jax,
    "py_composer": composer,
    "lightning": lightning,
    "transformers": transformers,
    "keras": keras,
}

if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in common.WORKLOADS or sys.argv[2] not in VARIANTS:
        sys.exit(f"usage: contender.py {'|'.join(common.WORKLOADS)} {'|'.join(VARIANTS)} FOLDER")
    common.serve(sys.argv[1], sys.argv[3], VARIANTS[sys.argv[2]])
