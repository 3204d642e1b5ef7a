// What does a batch cost before it is trained on?
#include <functional>
#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/data.h>

#include "benchmarks/bench.h"
#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "composer/data/map_style.h"

namespace composer::bench {
namespace {

constexpr std::int64_t kSamples = 12800, kBatch = 128;

// Makes batches from a loader. Between the segments the loader is at the end of an epoch, so that no batch is prepared
// that belongs to another contender's segment.
std::function<void(int)> batches_of(std::shared_ptr<Loader> loader) {
  return [loader, epoch = std::int64_t{0}](int calls) mutable {
    loader->seek(epoch++, 0);
    for (; calls > 0; --calls)
      if (!loader->next()) throw Error("a segment is longer than an epoch");
    loader->seek(epoch, *loader->num_batches());
  };
}

// Written by hand: a permutation for each epoch, one index_select of images and targets for each batch.
struct IndexSelect {
  at::Tensor images, targets;

  void run(int calls) {
    const at::Tensor order = at::randperm(kSamples);
    for (int i = 0; i < calls; ++i) {
      const at::Tensor now = order.slice(0, i * kBatch, (i + 1) * kBatch);
      const at::Tensor input = images.index_select(0, now), target = targets.index_select(0, now);
    }
  }
};

struct Images {
  at::Tensor bytes, floats, targets;
  data::Normalize normalize;

  explicit Images(at::IntArrayRef shape) {
    std::vector<std::int64_t> sizes = {kSamples};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    at::manual_seed(1);
    bytes = at::randint(256, sizes, at::kByte);
    targets = at::arange(kSamples);
    normalize.mean.assign(static_cast<std::size_t>(shape[0]), 0.286);
    normalize.stddev.assign(static_cast<std::size_t>(shape[0]), 0.353);
    floats = bytes.to(at::kFloat).div_(255).sub_(0.286).div_(0.353);
  }
  Batch of(const at::Tensor& images) const { return {{"input", images}, {"target", targets}}; }
};

void check(const Images& data, Loader& loader) {
  const std::optional<Batch> batch = loader.next();
  const at::Tensor expected = data.floats.index_select(0, batch->at("target"));
  if (!at::allclose(batch->at("input"), expected, 1e-5, 1e-5)) throw Error("a loader gives other images");
  loader.seek(0, 0);
}

void in_memory(const std::string& name, std::vector<std::int64_t> shape, bool channels_last, Report& report) {
  if (!report.wants(name)) return;
  const Images data(shape);
  const auto floats = data::in_memory(data.of(data.floats), {.batch_size = kBatch, .channels_last = channels_last});
  const auto bytes = [&](bool augment, std::int64_t cutout, std::int64_t prefetch) {
    return data::in_memory(data.of(data.bytes), {.batch_size = kBatch,
                                                 .normalize = data.normalize,
                                                 .flip = augment,
                                                 .crop_padding = augment ? 4 : 0,
                                                 .cutout = cutout,
                                                 .channels_last = channels_last,
                                                 .prefetch = prefetch});
  };
  const auto plain = bytes(false, 0, 0), ahead = bytes(false, 0, 2);
  for (const auto& loader : {floats, plain, ahead}) check(data, *loader);
  at::Tensor selected = data.floats;
  if (channels_last) selected = data.floats.permute({0, 2, 3, 1}).contiguous();
  report.compare(
      name,
      {{"index_select, float", [s = IndexSelect{selected, data.targets}](int calls) mutable { s.run(calls); }},
       {"float", batches_of(floats)},
       {"uint8", batches_of(plain)},
       {"uint8, prefetch 2", batches_of(ahead)},
       {"uint8, flip crop", batches_of(bytes(true, 0, 0))},
       {"uint8, flip crop cutout", batches_of(bytes(true, 8, 0))},
       {"uint8, the same, prefetch 2", batches_of(bytes(true, 8, 2))}},
      60, 100);
}

// Returns one image at a time, as in the examples of libtorch.
struct OneByOne : torch::data::Dataset<OneByOne> {
  explicit OneByOne(const Images& data) : images(data.bytes.to(at::kFloat).div_(255)), targets(data.targets) {}
  torch::data::Example<> get(std::size_t i) override {
    const auto at = static_cast<std::int64_t>(i);
    return {images[at], targets[at]};
  }
  std::optional<std::size_t> size() const override { return kSamples; }
  at::Tensor images, targets;
};

struct Mapped {
  at::Tensor images, targets, mean = at::full({1, 1, 1}, 0.286), stddev = at::full({1, 1, 1}, 0.353);
  std::int64_t size() const { return kSamples; }
  data::Sample get(std::int64_t i) const {
    return {{"input", images[i].sub(mean).div_(stddev)}, {"target", targets[i]}};
  }
};

// Samples are slow to make, as by a decoder: a millisecond for four of them.
struct Slow : Mapped {
  data::Sample get(std::int64_t i) const {
    at::Tensor image = images[i];
    for (int k = 0; k < 100; ++k) image = image.flip(2);
    return {{"input", image}, {"target", targets[i]}};
  }
};

template <class Loader>
std::function<void(int)> batches_of_torch(Loader loader) {
  return [shared = std::make_shared<Loader>(std::move(loader))](int calls) {
    auto batch = (*shared)->begin();  // begins a new epoch, and then has its first batch
    for (int i = 1; i < calls; ++i) ++batch;
  };
}

void map_style(Report& report) {
  const Images data({1, 28, 28});
  const at::Tensor floats = data.bytes.to(at::kFloat).div_(255);
  const auto loader = [&](std::int64_t workers) {
    return data::map_style(Mapped{.images = floats, .targets = data.targets},
                           {.batch_size = kBatch, .num_workers = workers});
  };
  for (std::int64_t workers : {0, 2}) check(data, *loader(workers));
  const std::string name = "samples 1x28x28 one by one, batch 128";
  if (report.wants(name)) {
    auto torch_loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
        OneByOne(data).map(torch::data::transforms::Normalize<>(0.286, 0.353)).map(torch::data::transforms::Stack<>()),
        torch::data::DataLoaderOptions(kBatch).drop_last(true));
    report.compare(name,
                   {{"torch::data", batches_of_torch(std::move(torch_loader))},
                    {"map_style", batches_of(loader(0))},
                    {"map_style, 1 worker", batches_of(loader(1))},
                    {"map_style, 2 workers", batches_of(loader(2))}},
                   20, 100);
  }
  const std::string slow = "samples that are work, batch 128";
  if (!report.wants(slow)) return;
  const auto working = [&](std::int64_t workers) {
    return batches_of(data::map_style(Slow{{.images = floats, .targets = data.targets}},
                                      {.batch_size = kBatch, .num_workers = workers}));
  };
  report.compare(slow, {{"map_style", working(0)}, {"1 worker", working(1)}, {"2 workers", working(2)}}, 10, 20);
}

void measure_data(int argc, char** argv) {
  at::set_num_threads(1);
  Report report(parse(argc, argv));
  in_memory("images 1x28x28, batch 128", {1, 28, 28}, false, report);
  in_memory("images 3x32x32 channels last, batch 128", {3, 32, 32}, true, report);
  map_style(report);
  report.write();
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) { composer::bench::measure_data(argc, argv); }
