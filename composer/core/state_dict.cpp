#include "composer/core/state_dict.h"

#include <algorithm>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "composer/core/error.h"

namespace composer {
namespace {

constexpr auto kNoEntry = static_cast<std::size_t>(-1);  // a name that is reserved, without a value

}  // namespace

StateDict::StateDict() = default;
StateDict::~StateDict() = default;
StateDict::StateDict(const StateDict&) = default;
StateDict::StateDict(StateDict&&) noexcept = default;
StateDict& StateDict::operator=(const StateDict&) = default;
StateDict& StateDict::operator=(StateDict&&) noexcept = default;

bool StateDict::empty() const { return entries_.empty(); }
std::size_t StateDict::size() const { return entries_.size(); }
std::span<StateDict::Entry> StateDict::entries() { return entries_; }

const StateValue* StateDict::find(std::string_view name) const {
  const auto found = positions_.find(name);
  return found == positions_.end() || found->second == kNoEntry ? nullptr : &entries_[found->second].second;
}

bool StateDict::claim(std::string_view name) { return positions_.emplace(name, kNoEntry).second; }

StateValue& StateDict::operator[](std::string_view name) {
  auto known = positions_.find(name);
  if (known == positions_.end()) known = positions_.emplace(name, kNoEntry).first;
  std::size_t& position = known->second;
  if (position != kNoEntry) return entries_[position].second;
  position = entries_.size();
  return entries_.emplace_back(std::string(name), StateValue()).second;
}

bool StateDict::erase(std::string_view name) {
  const auto found = positions_.find(name);
  if (found == positions_.end()) return false;
  const std::size_t erased = found->second;
  positions_.erase(found);
  if (erased == kNoEntry) return false;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(erased));
  for (auto& [other, position] : positions_)
    if (position > erased && position != kNoEntry) --position;
  return true;
}

void StateVisitor::fail(std::string_view name, const char* what) const {
  throw CheckpointError("checkpoint: ", path_, path_.empty() ? "" : "/", name, ' ', what);
}

const StateValue& StateVisitor::at(std::string_view name) const {
  const StateValue* value = from_->find(name);
  if (!value) fail(name, "is missing");
  return *value;
}

bool StateVisitor::has(std::string_view name) const { return from_ && from_->find(name); }

std::vector<std::string> StateVisitor::names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : from_->entries()) names.push_back(name);
  return names;
}

void StateVisitor::check_size(std::size_t size) const {
  if (from_ && size + 1 != from_->size()) fail("size", "does not fit the number of values beside it");
}

namespace {

constexpr const char* kTwice =
    "is the name of two fields, of which a run that goes on would have one alone; give each its own";

}  // namespace

void StateVisitor::claim(std::string_view name) const {
  if (!into_->claim(name)) fail(name, kTwice);
}

StateVisitor StateVisitor::scope(std::string_view name) {
  std::string path = join(path_, path_.empty() ? "" : "/", name);
  if (into_) {
    claim(name);
    StateValue& value = (*into_)[name];
    value = StateDict();
    return {&std::get<StateDict>(value), nullptr, std::move(path), of_};
  }
  const auto* inner = std::get_if<StateDict>(&at(name));
  if (!inner) fail(name, "is a single value, where there should be several");
  return {nullptr, inner, std::move(path), of_};
}

template <class T>
void StateVisitor::field(std::string_view name, T& value) {
  if (into_) {
    claim(name);
    (*into_)[name] = value;
  } else if (const auto* saved = std::get_if<T>(&at(name))) {
    value = *saved;
  } else {
    fail(name, "is of another type than it should be");
  }
}

void StateVisitor::operator()(std::string_view name, std::string& value) { field(name, value); }
void StateVisitor::operator()(std::string_view name, bool& value) { field(name, value); }
void StateVisitor::operator()(std::string_view name, std::int64_t& value) { field(name, value); }
void StateVisitor::operator()(std::string_view name, double& value) { field(name, value); }

void StateVisitor::operator()(std::string_view name, StateDict& value) { field(name, value); }

void StateVisitor::operator()(std::string_view name, at::Tensor& value) {
  if (into_) {
    value.defined() ? field(name, value) : claim(name);
    return;
  }
  const bool had = value.defined();
  const at::Device device = had ? value.device() : at::Device(at::kCPU);
  value.reset();
  if (!has(name)) return;  // it was undefined when it was saved
  field(name, value);
  value = value.to(device, /*non_blocking=*/false, /*copy=*/true);
}

void StateVisitor::operator()(std::string_view name, Seconds& value) {
  double seconds = value.count();
  field(name, seconds);
  value = Seconds(seconds);
}

void StateVisitor::operator()(std::string_view name, Time& value) {
  std::string text = to_string(value);
  field(name, text);
  if (!is_loading()) return;
  try {
    value = Time::parse(text);
  } catch (const Error& error) {
    fail(name, join("is no time: ", error.what()).c_str());
  }
}

void StateVisitor::operator()(std::string_view name, Timestamp& value) {
  StateVisitor visit = scope(name);
  Timestamp& t = value;
  visit("iteration", t.iteration), visit("epoch", t.epoch), visit("batch", t.batch);
  visit("sample", t.sample), visit("token", t.token);
  visit("epoch_in_iteration", t.epoch_in_iteration), visit("token_in_iteration", t.token_in_iteration);
  visit("batch_in_epoch", t.batch_in_epoch), visit("sample_in_epoch", t.sample_in_epoch);
  visit("token_in_epoch", t.token_in_epoch);
  visit("total_wct", t.total_wct), visit("iteration_wct", t.iteration_wct);
  visit("epoch_wct", t.epoch_wct), visit("batch_wct", t.batch_wct);
}

namespace {

template <class T>
void bulk(StateVisitor& visit, std::string_view name, std::vector<T>& value, at::ScalarType type) {
  at::Tensor all;
  if (!visit.is_loading()) {
    all = at::empty({static_cast<std::int64_t>(value.size())}, type);
    std::ranges::copy(value, all.mutable_data_ptr<T>());
  }
  visit(name, all);
  if (!visit.is_loading()) return;
  if (!all.defined() || all.scalar_type() != type || all.dim() != 1)
    throw CheckpointError("checkpoint: ", visit.path(), '/', name, " should be a list of numbers");
  value.assign(all.const_data_ptr<T>(), all.const_data_ptr<T>() + all.numel());
}

}  // namespace

void StateVisitor::operator()(std::string_view name, std::vector<double>& value) {
  bulk(*this, name, value, at::kDouble);
}
void StateVisitor::operator()(std::string_view name, std::vector<std::int64_t>& value) {
  bulk(*this, name, value, at::kLong);
}

}  // namespace composer
