#pragma once
#include <stop_token>
#include <string>

#include "composer/core/export.h"
#include "composer/net/remote_store.h"

namespace composer {

// Tells the processes that save the same run below a URI from each other: the last one that has started owns the run,
// and a small file there names it. Nothing expires, so a run that is resumed after a crash takes over at once; a
// process that is still running finds out when it calls hold(). Use from one thread at a time.
class COMPOSER_EXPORT RemoteOwner {
 public:
  explicit RemoteOwner(std::string run_name);

  // The first call makes this process the owner, with a warning if the previous one may still be running. Later calls
  // throw CheckpointError if another process has become the owner since. Throws what the store throws.
  void hold(net::RemoteStore& store, const std::stop_token& stop = {});
  // Removes the file. If the previous owner may still be running, the file stays for it, marked as ended. Does nothing
  // unless this process is the owner. The next hold() is a first call again.
  void release(net::RemoteStore& store, const std::stop_token& stop = {});

 private:
  void write(net::RemoteStore& store, bool ended, const std::stop_token& stop) const;

  std::string run_name_, file_, token_;
  bool held_ = false, leaves_file_ = false;
};

}  // namespace composer
