"""Records losses and gradients of the Python twins of our models, for twins_test.cpp.

    pip install torch torchvision transformers && python tests/models/twins.py > tests/models/twins.json

All is computed in double precision, in training mode. Weights and inputs are numbers that twins_test.cpp makes again.
"""

import json
import sys

import torch
import torchvision
import transformers
from torch import nn
from torchvision.models.resnet import BasicBlock


def numbers(count, k):
    """Numbers in [-0.5, 0.5) that look random."""
    return ((torch.arange(count) * 2654435761 + (k + 1) * 1013904223) % 2**32).double() / 2**32 - 0.5


def fill(model):
    for k, (name, parameter) in enumerate(sorted(model.named_parameters())):
        values = numbers(parameter.numel(), k).view(parameter.shape)
        if parameter.dim() > 1:
            values = values * 4 * (parameter.shape[0] / parameter.numel()) ** 0.5
        elif name.endswith("weight"):
            values = 1 + 0.2 * values
        parameter.data = values


class Cifar(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        width = 16
        for stage in range(3):
            blocks = []
            for i in range((depth - 2) // 6):
                out, stride = 16 << stage, 2 if stage and not i else 1
                down = None
                if out != width:
                    down = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
                blocks.append(BasicBlock(width, out, stride, down))
                width = out
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class ResNet9(nn.Module):
    def __init__(self, w):
        super().__init__()

        def conv(i, o):
            return [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o, momentum=0.9), nn.ReLU()]

        self.body = nn.Sequential(
            *conv(3, w), *conv(w, 2 * w), nn.MaxPool2d(2), BasicBlock(2 * w, 2 * w),
            *conv(2 * w, 4 * w), nn.MaxPool2d(2), *conv(4 * w, 4 * w), nn.MaxPool2d(2), BasicBlock(4 * w, 4 * w),
        )
        self.fc = nn.Linear(4 * w, 10)

    def forward(self, x):
        return self.fc(self.body(x).mean((2, 3)))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(48, 20), nn.Linear(20, 12), nn.Linear(12, 10)

    def forward(self, x):
        return self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())


class MnistCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.conv2(self.conv1(x).relu()).relu(), 2)
        return self.fc2(self.fc1(x.flatten(1)).relu())


class Gpt(nn.Module):
    """GPT-2 with matrices [out, in], as ours has them."""

    def __init__(self, tied):
        super().__init__()
        config = transformers.GPT2Config(
            vocab_size=37, n_positions=12, n_embd=24, n_layer=2, n_head=3, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            tie_word_embeddings=tied,
        )
        model = transformers.GPT2LMHeadModel(config)
        for name, module in list(model.named_modules()):
            if isinstance(module, transformers.pytorch_utils.Conv1D):
                parent, _, child = name.rpartition(".")
                linear = nn.Linear(module.weight.shape[0], module.weight.shape[1])
                setattr(model.get_submodule(parent), child, linear)
        for name, child in model.transformer.named_children():
            self.add_module(name, child)
        if not tied:
            self.lm_head = model.lm_head
        self.__dict__["model"] = model  # not registered: its parameters would have two names

    def forward(self, tokens):
        return self.model(tokens).logits


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        config = transformers.BertConfig(
            vocab_size=37, max_position_embeddings=12, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
            intermediate_size=40, hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=4,
        )
        model = transformers.BertForSequenceClassification(config)
        self.bert, self.classifier = model.bert, model.classifier
        self.__dict__["model"] = model

    def forward(self, tokens):
        kept = torch.ones_like(tokens)
        kept[0, -3:] = 0
        return self.model(tokens, attention_mask=kept, token_type_ids=(tokens > 18).long()).logits


def images(channels, size):
    return 4 * numbers(2 * channels * size * size, 500).view(2, channels, size, size)


def vit():
    return torchvision.models.VisionTransformer(
        image_size=16, patch_size=4, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=40, num_classes=10
    )


def tokens(n, t):
    return (torch.arange(n * t) * 7919 + 13).view(n, t) % 36 + 1


def record(model, x):
    model = model.double().train()
    fill(model)
    logits = model(x)
    classes = logits.shape[-1]
    target = (torch.arange(logits.numel() // classes) * 3) % classes
    loss = nn.functional.cross_entropy(logits.reshape(-1, classes), target)
    loss.backward()
    gradients = {}
    for name, parameter in sorted(model.named_parameters()):
        gradient = parameter.grad.flatten()
        gradients[name] = [gradient.norm().item(), (gradient * numbers(gradient.numel(), 999)).sum().item()]
    buffers = {n: b.sum().item() for n, b in sorted(model.named_buffers()) if b.is_floating_point()}
    return {"loss": loss.item(), "gradients": gradients, "buffers": buffers}


def main():
    resnets = {f"resnet{depth}": getattr(torchvision.models, f"resnet{depth}")(num_classes=7) for depth in (18, 34, 50)}
    cases = {name: record(model, images(3, 33)) for name, model in resnets.items()}
    cases["resnet_cifar20"] = record(Cifar(20), images(3, 16))
    cases["resnet_cifar56"] = record(Cifar(56), images(3, 16))
    cases["resnet9"] = record(ResNet9(6), images(3, 16))
    cases["mlp"] = record(Mlp(), images(3, 4))
    cases["mnist_cnn"] = record(MnistCnn(), images(1, 28))
    cases["vit"] = record(vit(), images(3, 16))
    cases["gpt"] = record(Gpt(tied=False), tokens(2, 11))
    cases["gpt_tied"] = record(Gpt(tied=True), tokens(2, 11))
    cases["bert"] = record(Bert(), tokens(3, 11))
    versions = {m.__name__: m.__version__ for m in (torch, torchvision, transformers)}
    text = {"recorded with": versions} | cases
    lines = [f'"{name}": ' + json.dumps(case, separators=(",", ":")) for name, case in text.items()]
    sys.stdout.write("{" + ",\n".join(lines) + "}\n")


main()
