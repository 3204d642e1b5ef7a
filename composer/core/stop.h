#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/export.h"

namespace composer {

// A request to end the run after the current batch. Copies share one request, and any thread may make it. The first
// reason counts, but FINISHED takes precedence over PAUSED. A request ends one fit(); the next fit() continues from
// there. If no fit is running, or the running one has begun to end, a request of another thread ends the next fit.
class COMPOSER_EXPORT Stop {
 public:
  // What a checkpoint stores about the request. A run that is resumed after FINISHED (early stopping) has nothing left
  // to do; after PAUSED (a time limit, a user) it continues training.
  enum Kind : std::uint8_t { PAUSED, FINISHED };

  Stop();
  void ask(const std::string& why, Kind kind = PAUSED) const;
  // One atomic load; stays true after the fit that the request has ended, until the next fit begins.
  bool asked() const;
  std::string why() const;
  Kind kind() const;  // PAUSED if there is no request
  void clear() const;

  // For the code that runs fits. see(): a fit is ending, so all current requests will be fulfilled by it. answer(): the
  // fit has ended. This answers the requests that were seen, and later ones of the calling thread, because its
  // callbacks meant this fit. clear_answered() removes an answered request.
  void see() const;
  void answer() const;
  void clear_answered() const;
  bool pending() const;  // requested, and not answered

 private:
  struct Request;
  std::shared_ptr<Request> request_;
};

}  // namespace composer
