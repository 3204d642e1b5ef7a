// Data on a GPU: loaders and metrics, as on the CPU.
#include "composer/core/error.h"
#include "composer/metrics/registry.h"
#include "tests/gpu/gpu.h"
#include "tests/metrics/kinds.h"

namespace composer::test::gpu_data_test {
namespace {

Batch bytes(std::int64_t channels) {
  return {{"input", noise(kSamples * channels * 12 * 10).mul_(255).to(at::kByte).view({kSamples, channels, 12, 10})},
          {"target", at::arange(kSamples).remainder(3)}};
}

Batch on_gpu_too(const Batch& batch) {
  Batch copy;
  for (const auto& [name, tensor] : batch) copy.set(name, tensor.to(kGpu));
  return copy;
}

TEST_CASE("A loader of images on a GPU gives the batches of one on the CPU, on the GPU" * on_gpu()) {
  const std::vector<data::InMemoryOptions> rows = {
      {},
      {.normalize = data::Normalize{{0.3}, {0.4}}},
      {.normalize = data::Normalize{{0.3}, {0.4}}, .flip = true},
      {.crop_padding = 2},
      {.normalize = data::Normalize{{0.3, 0.2, 0.1}, {0.4, 0.5, 0.6}}, .crop_padding = 3, .cutout = 4},
      {.normalize = data::Normalize{{0.3}, {0.4}}, .flip = true, .crop_padding = 2, .cutout = 5, .channels_last = true},
  };
  for (std::size_t row = 0; row < rows.size(); ++row) {
    CAPTURE(row);
    const std::int64_t channels = rows[row].normalize && rows[row].normalize->mean.size() == 3 ? 3 : 1;
    data::InMemoryOptions options = rows[row];
    options.batch_size = 24;
    options.seed = 5;
    const auto here = data::in_memory(bytes(channels), options),
               there = data::in_memory(on_gpu_too(bytes(channels)), options);
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      here->seek(epoch, 0);
      there->seek(epoch, 0);
      while (const std::optional<Batch> expected = here->next()) {
        const std::optional<Batch> got = there->next();
        REQUIRE(got);
        for (const auto& [name, tensor] : *expected) {
          CAPTURE(name);
          const at::Tensor& other = (*got)[name];
          CHECK(other.is_cuda());
          CHECK((other.scalar_type() == tensor.scalar_type()));
          REQUIRE(other.sizes() == tensor.sizes());
          for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
            CHECK(other.is_contiguous(format) == tensor.is_contiguous(format));
          CHECK(distance({other}, {tensor}) < 1e-6);
        }
      }
      CHECK_FALSE(there->next());
    }
  }
}

TEST_CASE("A run on data that lies on a GPU ends with the weights of one whose batches are copied there" * on_gpu()) {
  for (const Net& net : nets()) {
    TrainerOptions options = options_of(net, kGpu);
    options.train_dataloader = data::in_memory(on_gpu_too(net.data()), {.batch_size = kBatchSize});
    check_close(net.name, trained(std::move(options)), trained(options_of(net, kGpu)), 1e-5);
  }
}

// The figure of three batches; a kind of data that the metric refuses is NaN.
double figure(const Entry<Metrics>& entry, const Settings& settings, const Kind& kind, at::Device device) {
  at::manual_seed(4);
  const Metrics metrics = entry.make(settings);
  Metric& metric = **metrics.begin();
  for (int i = 0; i < 3; ++i) {
    const Step step = kind.draw(9, at::kFloat);
    Outputs outputs;
    Batch batch;
    for (const auto& [name, tensor] : step.outputs) outputs.set(name, tensor.to(device));
    for (const auto& [name, tensor] : step.batch) batch.set(name, tensor.to(device));
    metric.update(outputs, batch);
  }
  const at::Tensor value = metric.compute();
  CHECK(value.device().type() == device.type());
  return value.item<double>();
}

TEST_CASE("Every metric has the same figure on a GPU as on the CPU" * on_gpu()) {
  int compared = 0;
  for (const std::string& name : metrics::registry().names())
    for (const Settings& settings : settings_of(metrics::registry().find(name)))
      for (const Kind& kind : kinds()) {
        CAPTURE(name);
        CAPTURE(std::string(kind.name));
        double expected = 0;
        try {
          expected = figure(metrics::registry().find(name), settings, kind, kCpu);
        } catch (const std::exception&) {
          continue;  // another metric's kind of data; a class out of range is not looked for on a GPU
        }
        double got = 0;
        CHECK_NOTHROW(got = figure(metrics::registry().find(name), settings, kind, kGpu));
        CHECK(got == doctest::Approx(expected).epsilon(1e-5));
        ++compared;
      }
  CHECK(compared > 20);
}

}  // namespace
}  // namespace composer::test::gpu_data_test
