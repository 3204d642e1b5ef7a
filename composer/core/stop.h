#pragma once
#include <memory>
#include <string>

#include "composer/core/export.h"

namespace composer {

// A request to end the run after the current batch. Copies share one request; any thread may ask, the first reason
// counts, and the next fit() starts without it.
class COMPOSER_EXPORT Stop {
 public:
  Stop();
  void ask(const std::string& why) const;
  bool asked() const;  // one atomic load
  std::string why() const;
  void clear() const;

 private:
  struct Request;
  std::shared_ptr<Request> request_;
};

}  // namespace composer
