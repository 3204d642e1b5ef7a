#include "composer/util/checksum.h"

#define XXH_INLINE_ALL  // keeps the symbols of XXH inside of this file
#include <xxhash.h>

namespace composer::util {

struct Checksum::State {
  XXH3_state_t xxh3;  // aligned to 64 bytes
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
Checksum::~Checksum() = default;

void Checksum::update(const void* data, std::size_t size) {
  if (size > 0) XXH3_64bits_update(&state_->xxh3, data, size);
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->xxh3); }

std::string Checksum::text() const { return checksum_text(value()); }

std::string checksum_text(std::uint64_t value) {
  std::string text = "xxh3:";
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 15];
  return text;
}

}  // namespace composer::util
