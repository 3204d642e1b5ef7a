// What do checkpoints cost? ResNet-18 with AdamW, 134 MB, compared with a plain file of the same size, and with
// torch::save.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <unistd.h>

#include <ATen/ATen.h>
#include <torch/serialize.h>

#include "benchmarks/bench.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saver.h"
#include "composer/data/in_memory.h"
#include "composer/formats/byte_source.h"
#include "composer/models/resnet.h"
#include "composer/trainer/trainer.h"
#include "composer/util/checksum.h"
#include "composer/util/tune_process.h"

namespace {

using namespace composer;  // NOLINT(google-build-using-namespace): a program of one file
namespace fs = std::filesystem;

constexpr std::int64_t kEvery = 50;  // in batches

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

// The state of a run, for contenders that write it themselves.
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
  std::uint64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    files.write(file, path, at, tensor.const_data_ptr(), tensor.nbytes());
    at += tensor.nbytes();
  }
  files.sync(file, path);
  files.close(file, path);
}

// Only reads: reads each file into memory of its size, in pieces, and hashes each piece.
void read_and_hash(const fs::path& folder, const std::function<char*(std::size_t)>& memory) {
  constexpr std::size_t kPiece = 1 << 18;
  std::size_t total = 0;
  for (const auto& entry : fs::directory_iterator(folder)) total += entry.file_size();
  char* to = memory(total);
  for (const auto& entry : fs::directory_iterator(folder)) {
    util::Checksum sum;
    const auto file = formats::open_file(entry.path());
    for (std::uint64_t at = 0; at < file->size(); at += kPiece) {
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, file->size() - at));
      file->read(at, to, size);
      sum.update(to, size);
      to += size;
    }
  }
}

void read_into_new_memory(const fs::path& folder) {
  std::unique_ptr<char[]> memory;
  read_and_hash(folder, [&](std::size_t size) {
    memory.reset(new char[size]);
    return memory.get();
  });
}

void read_into_reused_memory(const fs::path& folder) {
  static std::vector<char> memory;
  read_and_hash(folder, [&](std::size_t size) {
    memory.resize(std::max(memory.size(), size));
    return memory.data();
  });
}

std::function<void(int)> times(std::function<void()> work) {
  return [work = std::move(work)](int calls) {
    for (int i = 0; i < calls; ++i) work();
  };
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
                   {{"plain file", times([&] { write_plain(folder / "plain", tensors); })},
                    {"checkpoint", times([&] {
                       saving::Manifest manifest;
                       manifest.name = "ba" + std::to_string(++number);
                       saver.plan(manifest);
                       saver.save(manifest, state);
                     })},
                    {"torch::save, not synced", times([&] { torch::save(tensors, folder / "torch.pt"); })}},
                   7, 1);
  }
  if (const std::string group = "read 134 MB"; report.wants(group)) {
    const saving::Found found = saving::open_checkpoint(folder / "run" / "first");
    std::vector<at::Tensor> loaded;
    torch::save(tensors, folder / "torch.pt");
    report.compare(group,
                   {{"read and hash, new memory", times([&] { read_into_new_memory(found.path); })},
                    {"read and hash, reused memory", times([&] { read_into_reused_memory(found.path); })},
                    {"checkpoint, verified", times([&] { saving::load(found); })},
                    {"torch::load, not verified", times([&] { torch::load(loaded, folder / "torch.pt"); })}},
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
  if (const std::string group = "read 134 MB, memory is kept"; report.wants(group)) {
    const saving::Found found = saving::open_checkpoint(folder / "run" / "first");
    tune_process();  // affects the rest of this program
    report.compare(group,
                   {{"read and hash, reused memory", times([&] { read_into_reused_memory(found.path); })},
                    {"checkpoint, verified", times([&] { saving::load(found); })}},
                   7, 1);
  }
  report.write();
  fs::remove_all(folder);
}
