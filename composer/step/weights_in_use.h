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

// Gives the model other weights for a use, those that an algorithm hands out by weights_for(). A tensor of the model
// stays the same object; only its memory is exchanged for that of the handed out one, without a copy. (Values are
// copied where a tensor shares its memory with others or has other strides.) Nothing happens without such an algorithm.
class WeightsInUse {
 public:
  WeightsInUse(State& state, const Engine& engine) : state_(state), engine_(engine) {}
  ~WeightsInUse() { end_to(0); }
  WeightsInUse(const WeightsInUse&) = delete;
  WeightsInUse& operator=(const WeightsInUse&) = delete;

  // The model has the weights of `use` in this scope, and those it had before when it ends, also after an exception.
  // Scopes nest. Throws ConfigError if two algorithms hand out weights, or if they do not fit the model.
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

  // As long as it lives, and when it ends, the weights are those of its beginning: for what puts back all that it
  // changes, or gives all ranks the values of rank 0. With HANDED_OUT the trained ones are compared when it ends.
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

  // A forward pass that evaluates or predicts, or a metric that takes its outputs. What it writes into buffers, such as
  // a count of its calls, and into parameters, as an embedding with max_norm does, is part of it, and no change;
  // nothing of it takes memory. What was written before it is one.
  class Forward {
   public:
    explicit Forward(WeightsInUse& weights);
    ~Forward();
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

   private:
    WeightsInUse& weights_;
  };

  // Which weights there are: another number if the trained ones, or those handed out, have changed since the last call.
  // Tensors were replaced or written to, which libtorch counts, or stepped() or loaded() was called. With another
  // number no value of state.metrics is current. That a scope exchanges weights is no change; what is written meanwhile
  // is.
  std::uint64_t version() noexcept;
  void stepped() noexcept;  // by the optimizer: what was measured until now was measured on others
  void loaded() noexcept;   // others were put into the model, or are handed out

  // Calls `act` with the trained weights in the model, then asks for the weights of the open scopes again. If `act`
  // throws, the trained weights stay in the model until these scopes end.
  void with_trained(const std::function<void()>& act);

  // Replaces tensors of `saved` that share memory with the model by the trained weights.
  void put_trained(StateDict& saved) const;
  // Adds to what is saved who hands out weights for evaluation, and where it has them (HandedOut).
  void tell_handed_out(StateDict& saved);
  // Replaces values of `weights`, which has those of state_dict(), by the handed out ones.
  void put(StateDict& weights, WeightsUse use) const;

 private:
  struct Exchanged {
    at::Tensor tensor;                    // of the model
    at::Tensor trained;                   // what it held before
    bool borrows;                         // it has the memory of the handed out tensor, else a copy of its values
    std::optional<std::int64_t> version;  // before
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

    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;  // so that no other gets its address
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
  AllSeen trained_;               // when they were looked at last
  std::vector<Seen> handed_out_;  // likewise
  std::string handed_out_by_;     // the algorithm that has handed them out; empty: none has
  std::uint64_t version_ = 0;
  int unchanged_ = 0;  // how many of these live
};

}  // namespace composer
