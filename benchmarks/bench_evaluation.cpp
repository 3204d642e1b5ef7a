// How fast is evaluation of ResNet-20 with accuracy, compared with a loop by hand without gradients?
#include <memory>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "benchmarks/bench.h"
#include "composer/data/in_memory.h"
#include "composer/metrics/classification.h"
#include "composer/models/resnet_cifar.h"
#include "composer/trainer/trainer.h"
#include "composer/util/tune_process.h"

namespace {

using namespace composer;  // NOLINT(google-build-using-namespace): a program of one file

constexpr std::int64_t kSamples = 1280, kBatch = 128;

std::shared_ptr<models::Classifier> resnet(bool channels_last) {
  at::manual_seed(1);
  auto net = models::resnet_cifar({.depth = 20, .num_classes = 10, .in_channels = 1});
  if (!channels_last) return net;
  const at::NoGradGuard no_grad;
  for (at::Tensor& p : net->parameters())
    if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
  return net;
}

Batch images() {
  at::manual_seed(2);
  return {{"input", at::randn({kSamples, 1, 28, 28})}, {"target", at::randint(10, {kSamples}, at::kLong)}};
}

std::shared_ptr<Trainer> trainer(bool channels_last, bool fold, Precision precision) {
  return std::make_shared<Trainer>(TrainerOptions{
      .model = resnet(channels_last),
      .eval_dataloader = data::in_memory(images(), {.batch_size = kBatch, .shuffle = false}),
      .device = at::Device(at::kCPU),
      .precision = precision,
      .fold_batch_norms = fold,
      .handle_signals = false,
  });
}

bench::Contender of_trainer(const char* name, bool channels_last, bool fold, Precision precision = Precision::FP32) {
  return {name, [made = trainer(channels_last, fold, precision)](int calls) {
            for (int i = 0; i < calls; ++i) made->eval();
          }};
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report(bench::parse(argc, argv));
  tune_process({.threads = 1});
  const std::string group = "evaluation of ResNet-20, 10 batches of 128";
  if (report.wants(group)) {
    const auto by_hand = [net = resnet(false), data = images()](int calls) {
      net->eval();
      const at::NoGradGuard no_grad;
      for (int i = 0; i < calls; ++i) {
        at::Tensor correct = at::zeros({}, at::kLong);
        for (std::int64_t from = 0; from < kSamples; from += kBatch) {
          Batch batch;
          batch.set("input", data["input"].narrow(0, from, kBatch));
          correct += (net->forward(batch).only().argmax(1) == data["target"].narrow(0, from, kBatch)).sum();
        }
        correct.item<std::int64_t>();
      }
    };
    report.compare(group,
                   {{"by hand", by_hand},
                    of_trainer("trainer", false, false),
                    of_trainer("batch norms folded", false, true),
                    of_trainer("channels last, folded", true, true),
                    of_trainer("bf16, channels last", true, false, Precision::AMP_BF16),
                    of_trainer("bf16, channels last, folded", true, true, Precision::AMP_BF16)},
                   5, 1);
  }
  report.write();
}
