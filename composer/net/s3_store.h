#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "composer/net/remote_store.h"

namespace composer::net {

// The Content-Length. If it is missing: nullopt for unknown, or HttpError with the file's URI.
std::optional<std::uint64_t> length_of(const HttpResponse& response);
std::uint64_t length_of(const HttpResponse& response, const std::string& uri);

// The size of all parts but the last when `size` bytes are uploaded: `wished`, or the smallest number of whole MiB that
// needs at most 10,000 parts, the limit of S3.
std::uint64_t s3_part_size(std::uint64_t size, std::uint64_t wished);

// Opens s3://bucket/folder.
std::unique_ptr<RemoteStore> open_s3_store(const std::string& uri, StoreOptions options);

}  // namespace composer::net
