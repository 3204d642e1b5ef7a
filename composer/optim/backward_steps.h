// Internal.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer::optim::detail {

// When, in a backward pass, parameters are updated. A gradient is complete once for each backward pass that reaches its
// parameter, and checkpoint() runs backward passes of its own: the first step learns how many there are.
class BackwardSteps {
 public:
  // `update` is given the place of a parameter: during the backward pass under a lock, and by finish() without. `name`
  // names one, for errors.
  using Update = std::function<void(std::size_t group, std::size_t index)>;
  using Name = std::function<std::string(std::size_t group, std::size_t index)>;
  BackwardSteps(std::string who, Update update, Name name);
  ~BackwardSteps();
  BackwardSteps(const BackwardSteps&) = delete;
  BackwardSteps& operator=(const BackwardSteps&) = delete;

  void watch(const at::Tensor& parameter, std::size_t group, std::size_t index);
  void release(const at::Tensor& parameter) const;
  void erase(std::size_t group, std::size_t index);  // the place of a parameter; those behind it move up
  void clear();                                      // all places

  void begin();   // a step; forgets what one that ended by an error has left
  void finish();  // updates what backward has reached less often than expected, or so that more could not be excluded

 private:
  struct Hook;
  struct Completions {
    int seen = 0;      // in this step
    int expected = 0;  // per step; 0: not known yet
    bool updated = false;
  };

  void complete(std::size_t group, std::size_t index);

  std::string who_;
  Update update_;
  Name name_;
  std::shared_ptr<BackwardSteps*> self_;  // for hooks: null after the destructor
  std::mutex mutex_;                      // of the following while backward runs: it may run hooks in several threads
  bool sees_checkpoints_ = false;         // in this step
  std::vector<std::vector<Completions>> completions_;  // of the parameters of each group
};

}  // namespace composer::optim::detail
