#pragma once
// Writes event files of TensorBoard: builds events from records, and frames them.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "composer/core/scalar.h"
#include "composer/util/protobuf.h"

namespace composer::loggers {

using util::Protobuf;

// The checksum CRC-32C (Castagnoli).
std::uint32_t crc32c(std::string_view bytes);

// Appends the event in the frame of a TFRecord: length, checksum of the length, event, checksum of the event. Checksums
// are masked.
void append_framed(std::string& bytes, const Protobuf& event);

struct EventTime {
  double wall_time = 0;  // seconds since 1970
  std::int64_t step = 0;
};

// The first event of a file.
Protobuf version_event(double wall_time);

// Builders of events with one value. `with_metadata`: the first value of a tag in a file defines the kind of the tag.
// The builders put_scalar() and put_simple() replace the content of `event`, and reuse its memory.
void put_scalar(Protobuf& event, const EventTime& time, std::string_view tag, double value, bool with_metadata);
// Uses the form of torch.utils.tensorboard, which EventAccumulator lists as "scalars".
void put_simple(Protobuf& event, const EventTime& time, std::string_view tag, double value);
Protobuf text_event(const EventTime& time, std::string_view tag, std::string_view markdown, bool with_metadata);
// `pngs` are PNG files of this size in pixels.
Protobuf image_event(const EventTime& time, std::string_view tag, std::span<const std::string> pngs, std::int64_t width,
                     std::int64_t height, std::string_view description, bool with_metadata);
// counts[i] is the number of values between edges[i] and edges[i + 1].
Protobuf histogram_event(const EventTime& time, std::string_view tag, std::span<const double> counts,
                         std::span<const double> edges, bool with_metadata);

using Hyperparameters = std::map<std::string, Scalar>;
Protobuf session_start_event(double wall_time, const Hyperparameters& hyperparameters, std::string_view group);
enum class SessionStatus : std::uint8_t { SUCCESS = 1, FAILURE = 2 };
Protobuf session_end_event(double wall_time, SessionStatus status);

}  // namespace composer::loggers
