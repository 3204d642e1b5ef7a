#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/export.h"

namespace composer {

// A request to end the run after the current batch. Copies share one request; any thread may ask. The first reason
// counts, but FINISHED outranks PAUSED. A request ends one fit(), and the fit() after that continues from there. If no
// fit is running, or the running one has begun to end, the request of another thread ends the next fit.
class COMPOSER_EXPORT Stop {
 public:
  // What a checkpoint keeps of the request: a run that is resumed after FINISHED (early stoppers) has nothing left to
  // do; after PAUSED (a time limit, a user) it goes on training.
  enum Kind : std::uint8_t { PAUSED, FINISHED };

  Stop();
  void ask(const std::string& why, Kind kind = PAUSED) const;
  bool asked() const;  // one atomic load; still true after the fit that the request has ended, until the next begins
  std::string why() const;
  Kind kind() const;  // PAUSED if nobody has asked
  void clear() const;

  // For the code that runs fits. see(): a fit ends, and with it all requests of now are met. answer(): it has ended,
  // which answers what was seen, and what the calling thread has asked since: its callbacks meant this fit.
  // clear_answered() forgets an answered request.
  void see() const;
  void answer() const;
  void clear_answered() const;
  bool pending() const;  // asked, and not answered

 private:
  struct Request;
  std::shared_ptr<Request> request_;
};

}  // namespace composer
