#pragma once

namespace composer {

class Engine;

// Whether a plug-in is in use by an engine that is not closed. A copy of a plug-in is not in use.
class Lease {
 public:
  Lease() = default;
  Lease(const Lease&) {}
  Lease& operator=(const Lease&) { return *this; }  // NOLINT(bugprone-unhandled-self-assignment): nothing is copied
  ~Lease() = default;

 private:
  friend class Engine;
  const Engine* holder_ = nullptr;
};

}  // namespace composer
