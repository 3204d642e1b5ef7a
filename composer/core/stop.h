#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/export.h"

namespace composer {

// A request to end the run after the current batch. Copies share one request; any thread may ask. The first reason
// counts, but FINISHED outranks PAUSED. A request ends one fit(), also one that begins only later; the next fit() goes
// on from there.
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

  // For who runs fits: the request has ended one; clear_answered() forgets such a request, and keeps one that nobody
  // has answered yet.
  void answer() const;
  void clear_answered() const;
  bool pending() const;  // asked, and not answered

 private:
  struct Request;
  std::shared_ptr<Request> request_;
};

}  // namespace composer
