#pragma once
#include <memory>
#include <string>

#include "composer/net/remote_store.h"

namespace composer::net {

// Of s3://bucket/folder.
std::unique_ptr<RemoteStore> open_s3_store(const std::string& uri, StoreOptions options);

}  // namespace composer::net
