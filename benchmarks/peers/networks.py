"""The networks of ../contender/workload.cpp and ../bench_gpu.cpp, with parameters of the same shapes."""
from torch import nn
from torch.nn import functional as F


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(64 * 12 * 12, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu_(self.conv1(x))
        x = F.relu_(self.conv2(x))
        x = F.dropout(F.max_pool2d(x, 2), 0.25, self.training).flatten(1)
        x = F.relu_(self.fc1(x))
        return self.fc2(F.dropout(x, 0.5, self.training))


def convolution(before, after, size, stride):
    return nn.Conv2d(before, after, size, stride, size // 2, bias=False)


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1, self.bn1 = convolution(before, after, 3, stride), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = convolution(after, after, 3, 1), nn.BatchNorm2d(after)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(convolution(before, after, 1, stride), nn.BatchNorm2d(after))

    def forward(self, x):
        y = F.relu_(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu_(y)


class Bottleneck(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        width = after // 4
        self.conv1, self.bn1 = convolution(before, width, 1, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = convolution(width, after, 1, 1), nn.BatchNorm2d(after)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(convolution(before, after, 1, stride), nn.BatchNorm2d(after))

    def forward(self, x):
        y = F.relu_(self.bn1(self.conv1(x)))
        y = F.relu_(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu_(y)


class ResNet(nn.Module):
    def __init__(self, channels, width, blocks, small_images, classes=10, bottlenecks=False):
        super().__init__()
        self.small_images = small_images
        self.conv1 = convolution(channels, width, 3 if small_images else 7, 1 if small_images else 2)
        self.bn1 = nn.BatchNorm2d(width)
        before, stages = width, []
        for stage, count in enumerate(blocks):
            after = (4 if bottlenecks else 1) * width << stage
            layer = []
            for i in range(count):
                layer.append((Bottleneck if bottlenecks else Block)(before, after, 2 if stage and not i else 1))
                before = after
            stages.append(nn.Sequential(*layer))
        self.layers = nn.Sequential(*stages)
        self.fc = nn.Linear(before, classes)

    def forward(self, x):
        x = F.relu_(self.bn1(self.conv1(x)))
        if not self.small_images:
            x = F.max_pool2d(x, 3, 2, 1)
        return self.fc(self.layers(x).mean((2, 3)))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.c_attn = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.attn_proj = nn.Linear(width, width)
        self.ln_2, self.c_fc = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.mlp_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        samples, tokens, width = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).view(samples, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(samples, tokens, width))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary=96, tokens=128, width=128, depth=4, heads=4, tied=False):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.h = nn.Sequential(*[GptBlock(width, heads) for _ in range(depth)])
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight

    def forward(self, x):
        return self.lm_head(self.ln_f(self.h(self.wte(x) + self.wpe.weight[: x.shape[1]])))
