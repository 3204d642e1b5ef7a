// Checkpoints of runs on a GPU.
#include "tests/gpu/gpu.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::gpu_checkpoints_test {
namespace {

struct Cut : std::exception {};

// Ends with an error at the begin of this batch; a checkpoint is written after each.
void cut_off(TrainerOptions options, const std::string& folder, std::int64_t batch) {
  options.save_folder = folder;
  options.save_interval = "1ba";
  options.callbacks.add(At([=](Event event, const State& state) {
    if (event == Event::BATCH_START && state.timestamp.batch == batch) throw Cut();
  }));
  Trainer trainer(std::move(options));
  CHECK_THROWS(trainer.fit());
}

TEST_CASE("A run on a GPU that is cut off and resumed ends as one that is not, to the bit" * on_gpu()) {
  const auto in_deterministic_mode = [](TrainerOptions options) {
    options.deterministic_mode = true;
    options.optimizer = optim::adamw({.lr = 0.01});
    return options;
  };
  for (const Net& net : nets()) {
    CAPTURE(std::string(net.name));
    check_cut_and_resumed([&] { return in_deterministic_mode(options_of(net, kGpu)); }, 5);
  }
  // with dropout and batch norm, in fp16 with its scaler
  check_cut_and_resumed(
      [&] {
        TrainerOptions options = in_deterministic_mode(tiny_options());
        options.model = model_with_memory();
        options.device = kGpu;
        options.precision = Precision::AMP_FP16;
        options.seed = 7;
        options.max_duration = "2ep";
        return options;
      },
      5);
}

TEST_CASE("A run that is cut off on one device goes on on the other" * on_gpu()) {
  for (const Net& net : nets())
    for (const auto& [from, to] : {std::pair(kGpu, kCpu), std::pair(kCpu, kGpu)}) {
      const Warnings warnings;  // the generator of the GPU has no state on the CPU
      const Folder folder;
      cut_off(options_of(net, from), folder / "ck", 5);
      TrainerOptions options = options_of(net, to);
      options.save_folder = folder / "ck";
      Trainer resumed(std::move(options));
      CHECK(resumed.state().timestamp.batch == 5);
      resumed.fit();
      check_close(std::string(net.name) + " from " + from.str() + " to " + to.str(), weights_on_cpu(resumed),
                  trained(options_of(net, kCpu)), net.tolerance);
    }
}

TEST_CASE("A checkpoint of a GPU that is written by another thread has the weights of its batch" * on_gpu()) {
  const Net& net = nets()[1];
  const Folder folder;
  std::vector<at::Tensor> of_batch;
  TrainerOptions options = options_of(net, kGpu);
  options.save_folder = folder / "ck";
  options.save_interval = "1ba";
  options.save_async = true;
  options.callbacks.add(At([&](Event event, const State& state) {
    if (event != Event::BATCH_END || state.timestamp.batch != 6) return;
    for (const at::Tensor& one : state.model->parameters()) of_batch.push_back(one.detach().to(kCpu, at::kDouble));
  }));
  trained(std::move(options));
  TrainerOptions loading = options_of(net, kGpu);
  loading.load_path = (folder / "ck/ep1-ba6").string();
  Trainer loaded(std::move(loading));
  std::vector<at::Tensor> got = weights_on_cpu(loaded);
  got.resize(of_batch.size());  // without buffers
  check_close("batch 6", got, of_batch, 0);
}

}  // namespace
}  // namespace composer::test::gpu_checkpoints_test
