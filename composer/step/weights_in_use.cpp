#include "composer/step/weights_in_use.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/formats/weights.h"
#include "composer/step/handed_out.h"

namespace composer {
namespace {

struct Given {
  std::string by;  // name of the algorithm
  const WeightsByName* weights = nullptr;
};

std::string_view phrase(WeightsUse use) { return use == WeightsUse::EVALUATION ? "for evaluation" : "for export"; }

// The weights that an algorithm hands out for this use, if there is one.
Given given(const Engine& engine, WeightsUse use) {
  Given found;
  for (const auto& algorithm : engine.algorithms()) {
    const WeightsByName* weights = algorithm.object->weights_for(use);
    if (!weights) continue;
    if (found.weights)
      throw ConfigError("algorithms: ", found.by, " and ", algorithm.name, " both hand out weights ", phrase(use),
                        "; use one of them");
    found = {algorithm.name, weights};
  }
  return found;
}

std::string text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return join(toString(tensor.scalar_type()), ' ', tensor.sizes(), " on ", tensor.device());
}

void check_fits(const Given& given, const std::string& name, const at::Tensor& ours, const at::Tensor& value) {
  if (!value.defined() || value.sizes() != ours.sizes() || value.scalar_type() != ours.scalar_type() ||
      value.device() != ours.device())
    throw ConfigError(given.by, "::weights_for: ", name, " is ", text(ours), " in the model, and ", text(value),
                      " in what was handed out");
}

[[noreturn]] void throw_unknown_weight(const Given& given, const std::string& name) {
  throw ConfigError(given.by, "::weights_for: the model has no parameter or buffer \"", name, '"');
}

// Whether the tensor's storage contains nothing but this tensor and views of it.
bool has_own_memory(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && tensor.storage_offset() == 0 &&
         tensor.is_non_overlapping_and_dense() && tensor.nbytes() == tensor.storage().nbytes();
}

bool can_borrow(const at::Tensor& tensor, const at::Tensor& from) {
  return has_own_memory(tensor) && has_own_memory(from) && tensor.strides() == from.strides() && tensor.nbytes() > 0 &&
         !tensor.is_alias_of(from);
}

// A pointer into another storage, which it keeps alive.
at::DataPtr borrowed(void* memory, const c10::Storage& owner) {
  const auto let_go = [](void* kept) { delete static_cast<c10::Storage*>(kept); };
  return {memory, new c10::Storage(owner), let_go, owner.device()};
}

// Gives the tensor the memory of `from`. Returns a tensor with the same size and strides that owns the former memory.
at::Tensor take_memory(const at::Tensor& tensor, const at::Tensor& from) {
  const c10::Storage &ours = tensor.storage(), &theirs = from.storage();
  at::DataPtr shared = borrowed(theirs.mutable_data(), theirs);
  c10::Storage spare(c10::Storage::use_byte_size_t(), ours.nbytes(), at::DataPtr(nullptr, ours.device()), nullptr,
                     /*resizable=*/false);
  const at::NoGradGuard no_grad;
  const at::Tensor kept = at::empty({0}, tensor.options()).set_(spare, 0, tensor.sizes(), tensor.strides());
  spare.set_data_ptr_noswap(ours.unsafeGetStorageImpl()->set_data_ptr(std::move(shared)));  // nothing below can fail
  return kept;
}

// Undoes take_memory(). Tensors that still refer to the memory of `kept` refer to that of the tensor from now on.
void give_memory_back(const at::Tensor& tensor, const at::Tensor& kept) {
  const c10::Storage &ours = tensor.storage(), &theirs = kept.storage();
  at::DataPtr shared = borrowed(theirs.mutable_data(), ours);
  ours.set_data_ptr_noswap(theirs.unsafeGetStorageImpl()->set_data_ptr(std::move(shared)));
}

// The part of the memory of `whole` where `tensor` lies in its own memory.
at::Tensor view_like(const at::Tensor& tensor, const at::Tensor& whole) {
  const at::NoGradGuard no_grad;
  return at::empty({0}, tensor.options())
      .set_(whole.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

bool same_place(const at::Tensor& a, const at::Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type();
}

void for_each_tensor(StateDict& dict, const std::function<void(at::Tensor&)>& act) {
  for (auto& [name, value] : dict.entries()) {
    if (auto* tensor = std::get_if<at::Tensor>(&value))
      act(*tensor);
    else if (auto* inner = std::get_if<StateDict>(&value))
      for_each_tensor(*inner, act);
  }
}

// Finds the dict that has all of these tensors, and sets `at` to its path. Returns nullptr if there is none.
const StateDict* find_all(const StateDict& dict, const std::string& path,
                          const std::unordered_set<const c10::TensorImpl*>& tensors, std::string& at) {
  std::unordered_set<const c10::TensorImpl*> found;
  for (const auto& [name, value] : dict.entries())
    if (const auto* tensor = std::get_if<at::Tensor>(&value); tensor && tensors.contains(tensor->unsafeGetTensorImpl()))
      found.insert(tensor->unsafeGetTensorImpl());
  if (found.size() == tensors.size()) {
    at = path;
    return &dict;
  }
  for (const auto& [name, value] : dict.entries())
    if (const auto* inner = std::get_if<StateDict>(&value))
      if (const StateDict* const all = find_all(*inner, join(path, '/', name), tensors, at)) return all;
  return nullptr;
}

// For weights with several names of which only some are in `values`: maps each other name to one that is.
std::map<std::string, std::string> tied_names(const formats::NamedTensors& weights, const StateDict& values) {
  std::unordered_map<const c10::TensorImpl*, const std::string*> names;
  for (const auto& [name, tensor] : weights)
    if (values.find(name)) names.emplace(tensor.unsafeGetTensorImpl(), &name);
  std::map<std::string, std::string> tied;
  for (const auto& [name, tensor] : weights)
    if (const auto other = names.find(tensor.unsafeGetTensorImpl()); other != names.end() && !values.find(name))
      tied.emplace(name, *other->second);
  return tied;
}

// Fails only if the device does, with a warning.
void copy_back(const at::Tensor& tensor, const at::Tensor& kept) {
  try {
    tensor.copy_(kept);
  } catch (...) {
    warn(join("the trained values of a weight ", tensor.sizes(),
              " could not be restored: ", describe(std::current_exception())));
  }
}

std::optional<std::int64_t> version_of(const c10::TensorImpl& tensor) {
  const c10::VariableVersion& counter = tensor.version_counter();
  return counter.enabled() ? std::optional<std::int64_t>(counter.current_version()) : std::nullopt;
}

std::optional<std::int64_t> version_of(const at::Tensor& tensor) { return version_of(*tensor.unsafeGetTensorImpl()); }

void warn_of_unseen() { warn(join("weights are taken for changed: ", describe(std::current_exception()))); }

}  // namespace

WeightsInUse::Seen::Seen(const at::Tensor& seen) : tensor(seen.getIntrusivePtr()) { look_again(); }

// The object of a destroyed tensor exists as long as there are weak references to it. It then has no memory.
void WeightsInUse::Seen::look_again() {
  const c10::TensorImpl& now = *tensor._unsafe_get_target();
  memory = now.has_storage() ? now.unsafe_storage().data() : nullptr;
  version = version_of(now);
}

bool WeightsInUse::Seen::operator==(const Seen& other) const {
  return tensor._unsafe_get_target() == other.tensor._unsafe_get_target() && memory == other.memory &&
         version == other.version;
}

bool WeightsInUse::Seen::is_as_seen() const {
  Seen now = *this;
  now.look_again();
  return now == *this;
}

WeightsInUse::AllSeen WeightsInUse::trained() const {
  const auto seen = [](const std::vector<at::Tensor>& tensors) {
    std::vector<Seen> all;
    for (const at::Tensor& tensor : tensors)
      if (tensor.defined()) all.emplace_back(tensor);
    return all;
  };
  const torch::nn::Module& model = as_module(*state_.model);
  return {.parameters = seen(parameters(model)), .buffers = seen(buffers(model))};
}

std::vector<WeightsInUse::Seen> WeightsInUse::handed_out() {
  std::vector<Seen> seen;
  handed_out_by_.clear();
  for (const auto& algorithm : engine_.algorithms()) {
    const WeightsByName* const weights = algorithm.object->weights_for(WeightsUse::EVALUATION);
    if (!weights || weights->empty()) continue;
    if (handed_out_by_.empty()) handed_out_by_ = algorithm.name;
    for (const auto& [name, tensor] : *weights)
      if (tensor.defined()) seen.emplace_back(tensor);
  }
  return seen;
}

// Whether the trained weights have changed since the last call, or cannot be listed.
bool WeightsInUse::see_trained() noexcept try {
  AllSeen now = trained();
  const bool others = now != trained_;
  trained_ = std::move(now);
  return others;
} catch (...) {
  warn_of_unseen();
  return true;
}

// Whether the handed out weights have changed since the last call. An algorithm that returns other tensors at each call
// computes them then. Such tensors prove nothing, so their values are assumed to change with the trained weights alone.
// While weights are in use, algorithms are not called, and the result is false.
bool WeightsInUse::see_handed_out() noexcept try {
  if (!uses_.empty()) return false;
  std::vector<Seen> now = handed_out();
  if (now == handed_out_) return false;
  const bool more_or_fewer = now.size() != handed_out_.size();
  handed_out_ = std::move(now);
  return more_or_fewer || handed_out() == handed_out_;
} catch (...) {
  warn_of_unseen();
  return true;
}

void WeightsInUse::have_changed() noexcept {
  ++version_;
  state_.metrics.weights_changed();
}

std::uint64_t WeightsInUse::version() noexcept {
  if (unchanged_ > 0) return version_;
  const bool others = see_trained(), others_handed_out = see_handed_out();
  if (others || others_handed_out) have_changed();
  return version_;
}

// Runs in each step, so it allocates nothing. Later changes are detected as well.
void WeightsInUse::stepped() noexcept {
  for (std::vector<Seen>* const all : {&trained_.parameters, &trained_.buffers, &handed_out_})
    for (Seen& one : *all) one.look_again();
  ++version_;
  state_.metrics.stepped();
}

void WeightsInUse::loaded() noexcept {
  see_trained();
  see_handed_out();
  have_changed();
}

WeightsInUse::Unchanged::Unchanged(WeightsInUse& weights, Trust trust) : weights_(weights), trust_(trust) {
  weights_.version();
  ++weights_.unchanged_;
}

WeightsInUse::Unchanged::~Unchanged() {
  if (--weights_.unchanged_ > 0) return;
  const bool others = weights_.see_trained();
  weights_.see_handed_out();
  if (others && trust_ == Trust::HANDED_OUT) weights_.have_changed();
}

WeightsInUse::Forward::Forward(WeightsInUse& weights) : weights_(weights) {
  const auto& [parameters, buffers] = weights.trained_;
  if (weights.unchanged_ == 0 &&
      !(std::ranges::all_of(buffers, &Seen::is_as_seen) && std::ranges::all_of(parameters, &Seen::is_as_seen)))
    weights.have_changed();
}

WeightsInUse::Forward::~Forward() {
  for (Seen& buffer : weights_.trained_.buffers) buffer.look_again();
  for (Seen& parameter : weights_.trained_.parameters) parameter.look_again();
}

WeightsInUse::Scope::Scope(WeightsInUse& weights, WeightsUse use) : weights_(weights), depth_(weights.uses_.size()) {
  weights.begin(use);
}

// Pairs of a tensor of the model and the tensor handed out for it.
std::vector<std::pair<at::Tensor, at::Tensor>> WeightsInUse::pairs(WeightsUse use) const {
  const Given handed_out = given(engine_, use);
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  if (!handed_out.weights) return pairs;
  const formats::NamedTensors named = composer::state_dict(as_module(*state_.model));
  std::unordered_map<std::string_view, const at::Tensor*> ours;
  for (const auto& [name, tensor] : named) ours.emplace(name, &tensor);
  for (const auto& [name, value] : *handed_out.weights) {
    const auto found = ours.find(name);
    if (found == ours.end()) throw_unknown_weight(handed_out, name);
    check_fits(handed_out, name, *found->second, value);
    pairs.emplace_back(*found->second, value);
  }
  return pairs;
}

void WeightsInUse::begin(WeightsUse use) {
  if (!uses_.empty() && uses_.back().use == use) return;
  version();  // counts the changes so far
  const auto exchanged = pairs(use);
  if (exchanged.empty()) return;
  const std::size_t depth = uses_.size();
  uses_.push_back({use, {}});
  std::vector<Exchanged>& list = uses_.back().tensors;
  list.reserve(exchanged.size());
  std::unordered_set<const c10::StorageImpl*> borrowing;  // a weight with two names is exchanged once
  const at::NoGradGuard no_grad;
  try {
    for (const auto& [tensor, value] : exchanged) {
      const c10::StorageImpl* storage = tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
      if (borrowing.contains(storage)) continue;
      const std::optional<std::int64_t> version = version_of(tensor);
      const bool borrows = can_borrow(tensor, value);
      if (borrows) {
        list.push_back({tensor, take_memory(tensor, value), borrows, version});
        borrowing.insert(storage);
        if (version) tensor.unsafeGetTensorImpl()->bump_version();
      } else {
        list.push_back({tensor, tensor.clone(), borrows, version});
        tensor.copy_(value);
      }
    }
    see_trained();
  } catch (...) {
    end_to(depth);
    throw;
  }
}

// An autograd graph that has saved a weight must find it unchanged after a use, so its version counter is restored.
void WeightsInUse::end_to(std::size_t depth) noexcept {
  if (uses_.size() <= depth) return;
  const at::NoGradGuard no_grad;
  const bool written = see_trained() && unchanged_ == 0;
  for (; uses_.size() > depth; uses_.pop_back()) {
    std::vector<Exchanged>& list = uses_.back().tensors;
    for (; !list.empty(); list.pop_back()) {
      const Exchanged& last = list.back();
      if (last.borrows)
        give_memory_back(last.tensor, last.trained);
      else
        copy_back(last.tensor, last.trained);
      if (c10::VariableVersion counter = last.tensor.unsafeGetTensorImpl()->version_counter(); last.version)
        counter.set_version(*last.version);
    }
  }
  see_trained();
  if (written) have_changed();
}

void WeightsInUse::with_trained(const std::function<void()>& act) {
  std::vector<WeightsUse> uses;
  uses.reserve(uses_.size());
  for (const Use& use : uses_) uses.push_back(use.use);
  end_to(0);
  act();
  for (const WeightsUse use : uses) begin(use);
}

void WeightsInUse::put_trained(StateDict& saved) const {
  if (uses_.empty()) return;
  std::unordered_map<const c10::StorageImpl*, std::vector<const Exchanged*>> exchanged;
  for (const Use& use : uses_)
    for (const Exchanged& one : use.tensors)
      if (one.tensor.has_storage()) exchanged[one.tensor.storage().unsafeGetStorageImpl()].push_back(&one);
  for_each_tensor(saved, [&](at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const auto found = exchanged.find(tensor.storage().unsafeGetStorageImpl());
    if (found == exchanged.end()) return;
    for (const Exchanged* one : found->second) {
      if (!one->borrows && !same_place(tensor, one->tensor)) continue;
      tensor = one->borrows ? view_like(tensor, one->trained) : one->trained;
      return;
    }
  });
}

void WeightsInUse::save_handed_out(StateDict& saved) {
  version();
  if (handed_out_by_.empty()) return;
  std::unordered_set<const c10::TensorImpl*> tensors;
  for (const Seen& seen : handed_out_) tensors.insert(seen.tensor._unsafe_get_target());
  HandedOut handed_out{.by = handed_out_by_, .at = {}, .tied = {}};
  const StateValue* const algorithms = saved.find("algorithms");
  const auto* const dict = algorithms ? std::get_if<StateDict>(algorithms) : nullptr;
  const StateDict* const values =
      dict && !tensors.empty() ? find_all(*dict, "algorithms", tensors, handed_out.at) : nullptr;
  if (values) handed_out.tied = tied_names(composer::state_dict(as_module(*state_.model)), *values);
  StateVisitor::saving(saved)("handed_out", handed_out);
}

void WeightsInUse::put(StateDict& weights, WeightsUse use) const {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> values;
  for (const auto& [tensor, value] : pairs(use)) values.emplace(tensor.unsafeGetTensorImpl(), value);
  if (values.empty()) return;
  for (const auto& [name, tensor] : composer::state_dict(as_module(*state_.model)))
    if (const auto found = values.find(tensor.unsafeGetTensorImpl()); found != values.end())
      weights[name] = found->second.detach();
}

}  // namespace composer
