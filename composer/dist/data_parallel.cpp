#include "composer/dist/data_parallel.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <set>

#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/dist/agreement.h"
#include "composer/dist/described_options.h"
#include "composer/dist/gradient_reducer.h"
#include "composer/dist/world.h"

namespace composer::dist {

// The properties that a parameter had when the buckets were made for it.
struct ParameterLayout {
  at::Tensor tensor;
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype;
  at::Device device;

  explicit ParameterLayout(const at::Tensor& of)
      : tensor(of), sizes(of.sizes().vec()), dtype(of.scalar_type()), device(of.device()) {}
  bool holds(const at::Tensor& now) const {
    return now.is_same(tensor) && now.sizes() == at::IntArrayRef(sizes) && now.scalar_type() == dtype &&
           now.device() == device;
  }
};

namespace {

constexpr const char* kDataParallel = "data parallel";

void check_on_this_rank(const DataParallel::Named& parameters) {
  if (parameters.empty()) throw ConfigError(kDataParallel, ": there is no parameter to train");
  std::map<const void*, std::string> seen;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad()) throw ConfigError(kDataParallel, ": ", name, " does not require gradients");
    if (!tensor.is_leaf()) throw ConfigError(kDataParallel, ": ", name, " is not a leaf tensor");
    if (tensor.device() != parameters.front().second.device())
      throw ConfigError(kDataParallel, ": ", name, " is on ", tensor.device(), ", ", parameters.front().first, " on ",
                        parameters.front().second.device());
    const auto [before, is_new] = seen.emplace(tensor.unsafeGetTensorImpl(), name);
    if (!is_new)
      throw ConfigError(kDataParallel, ": ", before->second, " and ", name, " are the same tensor; pass it once");
  }
}

// Describes what must be equal on all ranks: the options in the first line, then one line for each tensor.
std::vector<std::string> describe_parameters(const DataParallel::Named& parameters, const DataParallel::Named& buffers,
                                             const DataParallelOptions& options) {
  std::vector<std::string> lines(1);
  for (const auto& option : data_parallel_options())
    lines[0] += join(lines[0].empty() ? "" : ", ", option.name, " = ", text_of(option.value(options)));
  for (const auto& [name, tensor] : parameters) lines.push_back("the parameter " + describe_tensor(name, tensor));
  for (const auto& [name, tensor] : buffers) lines.push_back("the buffer " + describe_tensor(name, tensor));
  return lines;
}

// Called for each use: a module that moves or converts its buffers replaces their memory.
std::vector<at::Tensor> detached(const DataParallel::Named& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor.detach());
  return tensors;
}

std::string names_of(const std::vector<std::size_t>& indices, const DataParallel::Named& parameters) {
  return listed(
      indices, [&](std::size_t index) { return parameters[index].first; }, 8);
}

DataParallel::Named parameters_of(const torch::nn::Module& module) {
  DataParallel::Named parameters;
  std::set<const void*> seen;
  for (auto& [name, tensor] : named_parameters(module))
    if (tensor.requires_grad() && seen.insert(tensor.unsafeGetTensorImpl()).second)
      parameters.emplace_back(std::move(name), std::move(tensor));
  return parameters;
}

}  // namespace

struct DataParallel::Impl {
  std::shared_ptr<World> world;
  Named parameters, buffers;  // buffers: those to broadcast
  std::vector<ParameterLayout> layouts;
  std::optional<bool> find_unused;           // unset: no step has left out a parameter so far
  std::unique_ptr<GradientReducer> reducer;  // null if the world has one rank
  std::deque<std::shared_ptr<const GradientReducer::Counts>> unchecked;  // of the latest steps

  // Runs collectives. An error caused by the loss of another rank becomes PeerLost.
  void together(const std::function<void()>& run) const {
    if (world->is_alone()) return;
    try {
      run();
    } catch (...) {
      world->rethrow();
    }
  }

  void make_reducer(const DataParallelOptions& options) {
    std::vector<at::Tensor> tensors;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : parameters) {
      names.push_back(name);
      tensors.push_back(tensor);
    }
    reducer = std::make_unique<GradientReducer>(
        world->group(), tensors, names,
        GradientReducer::Options{.bucket_bytes = options.bucket_cap_mb << 20, .in_bf16 = options.gradients_in_bf16});
  }

  void enter() {
    if (reducer->has_begun())
      throw ConfigError(kDataParallel,
                        ": the last step was not completed by after_backward(), so the ranks are out of step");
    reducer->before_forward();
    if (buffers.empty()) return;
    const at::NoGradGuard no_grad;
    world->broadcast(detached(buffers), 0);
  }

  void finish(bool must_have) {
    reducer->finish(must_have);
    if (find_unused != true) unchecked.push_back(reducer->start_counts());
    // On a GPU, the check is one step behind, so that the host never waits for a device that has nothing else to do.
    // There the error is thrown in the next step.
    check_missing(parameters.front().second.is_cpu() ? 0 : 1);
    reducer->drop_absent();
  }

  // Checks the unchecked steps except the latest `but`. All ranks have the same summaries, so they decide alike.
  void check_missing(std::size_t but) {
    for (; unchecked.size() > but; unchecked.pop_front()) {
      const GradientReducer::Summary summary = GradientReducer::summary(*unchecked.front());
      if (!summary.any_missing) continue;
      unchecked.clear();
      if (find_unused) throw_missing(summary.missing_here);
      find_unused = true;
      return;
    }
  }

  [[noreturn]] void throw_missing(const std::vector<std::size_t>& here) const {
    std::string text;
    const std::vector<std::string> ranks = world->all_gather(names_of(here, parameters));
    for (std::size_t r = 0; r < ranks.size(); ++r)
      if (!ranks[r].empty()) text += join(text.empty() ? "" : "; ", ranks[r], " on rank ", r);
    throw ConfigError(kDataParallel, ": no gradient for ", text,
                      ". If some parameters are not used in every step, set find_unused_parameters = true");
  }
};

DataParallel::DataParallel(std::shared_ptr<World> world, Named parameters, Named buffers,
                           const DataParallelOptions& options)
    : impl_(std::make_unique<Impl>()) {
  Impl& m = *impl_;
  m.world = std::move(world);
  m.parameters = std::move(parameters);
  if (options.broadcast_buffers) m.buffers = buffers;
  for (const auto& [name, tensor] : m.parameters) m.layouts.emplace_back(tensor);
  m.find_unused = options.find_unused_parameters;
  check(options, data_parallel_options(), join(kDataParallel, ": "), "");

  m.together(
      [&] { check_same_on_all_ranks(*m.world, kDataParallel, describe_parameters(m.parameters, buffers, options)); });
  check_on_this_rank(m.parameters);
  m.together([&] {
    if (options.share_values) {
      const at::NoGradGuard no_grad;
      m.world->broadcast(detached(m.parameters), 0);
      if (!buffers.empty()) m.world->broadcast(detached(buffers), 0);
    }
    m.make_reducer(options);
  });
}

DataParallel::DataParallel(std::shared_ptr<World> world, const torch::nn::Module& module,
                           const DataParallelOptions& options)
    : DataParallel(std::move(world), parameters_of(module), named_buffers(module), options) {}

DataParallel::~DataParallel() = default;

void DataParallel::before_forward() {
  impl_->together([&] { impl_->enter(); });
}

void DataParallel::before_backward(const std::vector<at::Tensor>& outputs) {
  impl_->together([&] { impl_->reducer->begin(impl_->find_unused == true ? &outputs : nullptr); });
}

void DataParallel::after_backward() {
  impl_->together([&] {
    if (!impl_->reducer->has_begun())
      throw ConfigError(kDataParallel, ": after_backward() needs before_backward() first");
    impl_->finish(/*must_have=*/true);
  });
}

void DataParallel::backward(const at::Tensor& loss) {
  before_backward({loss});
  if (impl_->world->is_alone())
    loss.backward();
  else
    impl_->together([&] { loss.backward(); });
  after_backward();
}

void DataParallel::take_part() {
  impl_->together([&] {
    impl_->enter();
    impl_->reducer->begin(nullptr);
    impl_->finish(/*must_have=*/false);
  });
}

bool DataParallel::matches(const std::vector<at::Tensor>& parameters) const {
  return std::ranges::equal(impl_->layouts, parameters,
                            [](const ParameterLayout& layout, const at::Tensor& now) { return layout.holds(now); });
}

}  // namespace composer::dist
