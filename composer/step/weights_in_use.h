#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/UndefinedTensorImpl.h>

#include "composer/core/weights_use.h"

namespace composer {

class Engine;
class StateDict;
struct State;

// Gives the model other weights for a use: those that an algorithm returns from weights_for(). A tensor of the model
// stays the same object; its memory is exchanged for that of the handed out tensor, without a copy. (Values are copied
// if a tensor shares its memory with others or has other strides.) Without such an algorithm, nothing happens.
class WeightsInUse {
 public:
  WeightsInUse(State& state, const Engine& engine) : state_(state), engine_(engine) {}
  ~WeightsInUse() { end_to(0); }
  WeightsInUse(const WeightsInUse&) = delete;
  WeightsInUse& operator=(const WeightsInUse&) = delete;

  // In this scope, the model has the weights of `use`. At its end, also after an exception, the model has the weights
  // of before. Scopes nest. Throws ConfigError if two algorithms hand out weights, or if the weights do not fit the
  // model.
  class Scope {
   public:
    Scope(WeightsInUse& weights, WeightsUse use);
    ~Scope() { weights_.end_to(depth_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WeightsInUse& weights_;
    std::size_t depth_;
  };

  // While it lives, and when it ends, the weights count as unchanged. It is for code that undoes all its changes, or
  // gives all ranks the values of rank 0. With HANDED_OUT, the trained weights are compared at the end.
  enum class Trust : std::uint8_t { ALL, HANDED_OUT };
  class Unchanged {
   public:
    explicit Unchanged(WeightsInUse& weights, Trust trust = Trust::ALL);
    ~Unchanged();
    Unchanged(const Unchanged&) = delete;
    Unchanged& operator=(const Unchanged&) = delete;

   private:
    WeightsInUse& weights_;
    Trust trust_;
  };

  // A forward pass that evaluates or predicts, or a metric that takes its outputs. Writes to buffers, such as a count
  // of calls, and to parameters, as by an embedding with max_norm, are part of the pass and do not count as changes.
  // Writes before the pass do. Allocates nothing.
  class Forward {
   public:
    explicit Forward(WeightsInUse& weights);
    ~Forward();
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

   private:
    WeightsInUse& weights_;
  };

  // A number that changes whenever the trained or the handed out weights have changed: tensors were replaced or written
  // to, which libtorch counts, or stepped() or loaded() was called. When it changes, no value of state.metrics is
  // current any more. Exchanging weights by a scope is no change; writes during the scope are.
  std::uint64_t version() noexcept;
  void stepped() noexcept;  // the optimizer has stepped, so earlier measurements belong to other weights
  void loaded() noexcept;   // other weights were loaded into the model, or are handed out

  // Calls `act` with the trained weights in the model, then restores the weights of the open scopes. If `act` throws,
  // the trained weights stay in the model until these scopes end.
  void with_trained(const std::function<void()>& act);

  // Replaces tensors of `saved` that share memory with the model by the trained weights.
  void put_trained(StateDict& saved) const;
  // Adds to `saved` which algorithm hands out weights for evaluation, and where it saves them (HandedOut).
  void save_handed_out(StateDict& saved);
  // Replaces values in `weights`, which has the entries of state_dict(), by the handed out ones.
  void put(StateDict& weights, WeightsUse use) const;

 private:
  struct Exchanged {
    at::Tensor tensor;   // tensor of the model
    at::Tensor trained;  // the trained values, or those of an outer scope
    bool borrows;        // whether the tensor has the memory of the handed out one, rather than a copy of its values
    std::optional<std::int64_t> version;  // before the exchange
  };
  struct Use {
    WeightsUse use;
    std::vector<Exchanged> tensors;
  };

  struct Seen {
    explicit Seen(const at::Tensor& seen);
    void look_again();
    bool is_as_seen() const;
    bool operator==(const Seen& other) const;

    // Weak, so that no other tensor gets its address.
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    const void* memory = nullptr;
    std::optional<std::int64_t> version = {};
  };

  struct AllSeen {
    std::vector<Seen> parameters, buffers;
    bool operator==(const AllSeen&) const = default;
  };

  AllSeen trained() const;
  std::vector<Seen> handed_out();
  bool see_trained() noexcept;
  bool see_handed_out() noexcept;
  void have_changed() noexcept;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs(WeightsUse use) const;
  void begin(WeightsUse use);
  void end_to(std::size_t depth) noexcept;

  State& state_;
  const Engine& engine_;
  std::vector<Use> uses_;         // outermost first
  AllSeen trained_;               // when it was last compared
  std::vector<Seen> handed_out_;  // when they were last compared
  std::string handed_out_by_;     // algorithm that has handed them out; empty: none has
  std::uint64_t version_ = 0;
  int unchanged_ = 0;  // number of Unchanged objects that live
};

}  // namespace composer
