// What checkpoints cost: ResNet-18 with AdamW, 134 MB. Beside a plain file of the same size, and torch::save.
#include <filesystem>
#include <fstream>
#include <memory>
#include <unistd.h>

#include <ATen/ATen.h>
#include <torch/serialize.h>

#include "benchmarks/bench.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saver.h"
#include "composer/data/in_memory.h"
#include "composer/models/resnet.h"
#include "composer/trainer/trainer.h"
#include "composer/util/checksum.h"

namespace {

using namespace composer;
namespace fs = std::filesystem;

constexpr std::int64_t kEvery = 50;  // batches

std::shared_ptr<Trainer> trainer(const fs::path& folder, bool save) {
  at::manual_seed(1);
  const std::int64_t samples = 512;
  Batch images = {{"input", at::randn({samples, 3, 32, 32})}, {"target", at::randint(10, {samples}, at::kLong)}};
  TrainerOptions options{
      .model = models::resnet({.num_classes = 10}),
      .train_dataloader = data::in_memory(images, {.batch_size = 64}),
      .optimizer = optim::adamw(),
      .max_duration = "1000000ba",
      .device = at::Device(at::kCPU),
      .handle_signals = false,
  };
  if (save) {
    options.save_folder = folder;
    options.save_interval = Time(kEvery, TimeUnit::BATCH);
    options.save_num_checkpoints_to_keep = 2;
    options.save_overwrite = true;
    options.autoresume = false;
  }
  return std::make_shared<Trainer>(std::move(options));
}

// The state of a run, for those who write it themselves.
StateDict state_of_run(const fs::path& folder) {
  auto made = trainer(folder, true);
  made->fit("1ba");
  const std::string path = made->save_checkpoint("first");
  made->close();
  return saving::load(saving::open_checkpoint(path));
}

void tensors_of(const StateDict& state, std::vector<at::Tensor>& all) {
  for (const auto& [name, value] : state.entries()) {
    if (const auto* dict = std::get_if<StateDict>(&value)) tensors_of(*dict, all);
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) all.push_back(*tensor);
  }
}

void write_plain(const fs::path& path, const std::vector<at::Tensor>& tensors) {
  saving::FileSystem files;
  files.remove(path);
  const int file = files.create(path);
  for (const at::Tensor& tensor : tensors) files.write(file, path, tensor.const_data_ptr(), tensor.nbytes());
  files.sync(file, path);
  files.close(file, path);
}

void read_and_hash(const fs::path& folder) {
  std::vector<char> piece(1 << 18);
  for (const auto& entry : fs::directory_iterator(folder)) {
    util::Checksum sum;
    std::ifstream file(entry.path(), std::ios::binary);
    while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0)
      sum.update(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report(bench::parse(argc, argv));
  const fs::path folder = fs::current_path() / ("bench-checkpoints-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const StateDict state = state_of_run(folder / "run");
  std::vector<at::Tensor> tensors;
  tensors_of(state, tensors);

  if (const std::string group = "write 134 MB, synced"; report.wants(group)) {
    saving::Saver saver({.folder = folder / "saver", .keep = 1, .asynchronous = false, .run_id = "bench"});
    int number = 0;
    report.compare(group,
                   {{"plain file",
                     [&](int calls) {
                       for (int i = 0; i < calls; ++i) write_plain(folder / "plain", tensors);
                     }},
                    {"checkpoint",
                     [&](int calls) {
                       for (int i = 0; i < calls; ++i) {
                         saving::Manifest manifest;
                         manifest.name = "ba" + std::to_string(++number);
                         saver.plan(manifest.name, {});
                         saver.save(manifest, state);
                       }
                     }},
                    {"torch::save, not synced",
                     [&](int calls) {
                       for (int i = 0; i < calls; ++i) torch::save(tensors, folder / "torch.pt");
                     }}},
                   7, 1);
  }
  if (const std::string group = "read 134 MB"; report.wants(group)) {
    const saving::Found found = saving::open_checkpoint(folder / "run" / "first");
    std::vector<at::Tensor> loaded;
    torch::save(tensors, folder / "torch.pt");
    report.compare(group,
                   {{"read and hash",
                     [&](int calls) {
                       for (int i = 0; i < calls; ++i) read_and_hash(found.path);
                     }},
                    {"checkpoint, verified",
                     [&](int calls) {
                       for (int i = 0; i < calls; ++i) saving::load(found);
                     }},
                    {"torch::load, not verified",
                     [&](int calls) {
                       for (int i = 0; i < calls; ++i) torch::load(loaded, folder / "torch.pt");
                     }}},
                   7, 1);
  }
  if (const std::string group = "train 50 batches of 64"; report.wants(group)) {
    auto plain = trainer(folder / "train", false), saves = trainer(folder / "train", true);
    report.compare(group,
                   {{"no checkpoints", [&](int) { plain->fit(Time(kEvery, TimeUnit::BATCH)); }},
                    {"one, asynchronously", [&](int) { saves->fit(Time(kEvery, TimeUnit::BATCH)); }}},
                   5, kEvery);
    saves->close();
  }
  report.write();
  fs::remove_all(folder);
}
