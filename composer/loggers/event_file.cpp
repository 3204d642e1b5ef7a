#include "composer/loggers/event_file.h"

#include <array>
#include <type_traits>

#include "composer/loggers/json_text.h"

namespace composer::loggers {
namespace {

enum DataType : std::uint8_t { FLOAT = 1, DOUBLE = 2, STRING = 7 };
enum DataClass : std::uint8_t { SCALAR = 1, TENSOR = 2, BLOB_SEQUENCE = 3 };

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t n = 0; n < 256; ++n) {
    std::uint32_t value = n;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? 0x82F63B78 ^ (value >> 1) : value >> 1;
    table[n] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (unsigned shift = 0; shift < 8 * sizeof(Unsigned); shift += 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string masked_checksum(std::string_view bytes) {
  const std::uint32_t sum = crc32c(bytes);
  return little_endian<std::uint32_t>((sum >> 15 | sum << 17) + 0xA282EAD8);
}

Protobuf shape(std::initializer_list<std::int64_t> sizes) {
  Protobuf shape;
  for (const std::int64_t size : sizes) shape.message(2, Protobuf().whole(1, size));
  return shape;
}

Protobuf metadata(std::string_view plugin, DataClass data_class, std::string_view content = {},
                  std::string_view description = {}) {
  Protobuf data;
  data.text(1, plugin);
  if (!content.empty()) data.text(2, content);
  Protobuf all;
  all.message(1, data);
  if (!description.empty()) all.text(3, description);
  return all.whole(4, data_class);
}

Protobuf event(const EventTime& time, const Protobuf& value) {
  Protobuf all;
  all.number(1, time.wall_time);
  if (time.step != 0) all.whole(2, time.step);
  return all.message(5, Protobuf().message(1, value));
}

Protobuf tensor_event(const EventTime& time, std::string_view tag, const Protobuf& tensor, const Protobuf* metadata) {
  Protobuf value;
  value.text(1, tag).message(8, tensor);
  if (metadata != nullptr) value.message(9, *metadata);
  return event(time, value);
}

// All data of hyperparameters is in the metadata.
Protobuf hyperparameter_event(double wall_time, std::string_view tag, const Protobuf& content) {
  const Protobuf of_plugin = metadata("hparams", TENSOR, content.bytes());
  return tensor_event({wall_time, 0}, tag, Protobuf().whole(1, FLOAT).message(2, shape({0})), &of_plugin);
}

Protobuf json_value(const Scalar& value) {
  return std::visit(
      [](const auto& held) {
        using T = std::remove_cvref_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string>)
          return Protobuf().text(3, valid_utf8(held));
        else if constexpr (std::is_same_v<T, bool>)
          return Protobuf().whole(4, held ? 1 : 0);
        else
          return Protobuf().number(2, static_cast<double>(held));
      },
      value);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t sum = ~0U;
  for (const char byte : bytes) sum = kTable[(sum ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (sum >> 8);
  return ~sum;
}

std::string framed(const Protobuf& event) {
  const std::string length = little_endian<std::uint64_t>(event.bytes().size());
  return length + masked_checksum(length) + event.bytes() + masked_checksum(event.bytes());
}

Protobuf version_event(double wall_time) {
  return Protobuf().number(1, wall_time).text(3, "brain.Event:2").message(10, Protobuf().text(1, "libcomposer"));
}

// Of rank 0 and single precision: TensorBoard's data server shows no other scalars.
Protobuf scalar_event(const EventTime& time, std::string_view tag, double value, bool with_metadata) {
  static const Protobuf kind = metadata("scalars", SCALAR);
  const Protobuf tensor = Protobuf().whole(1, FLOAT).message(2, shape({})).single(5, static_cast<float>(value));
  return tensor_event(time, tag, tensor, with_metadata ? &kind : nullptr);
}

Protobuf simple_event(const EventTime& time, std::string_view tag, double value) {
  return event(time, Protobuf().text(1, tag).single(2, static_cast<float>(value)));
}

Protobuf text_event(const EventTime& time, std::string_view tag, std::string_view markdown, bool with_metadata) {
  static const Protobuf kind = metadata("text", TENSOR);
  const Protobuf tensor = Protobuf().whole(1, STRING).message(2, shape({})).text(8, valid_utf8(markdown));
  return tensor_event(time, tag, tensor, with_metadata ? &kind : nullptr);
}

Protobuf image_event(const EventTime& time, std::string_view tag, std::span<const std::string> pngs, std::int64_t width,
                     std::int64_t height, std::string_view description, bool with_metadata) {
  const Protobuf kind = metadata("images", BLOB_SEQUENCE, {}, valid_utf8(description));
  Protobuf tensor;
  tensor.whole(1, STRING).message(2, shape({static_cast<std::int64_t>(pngs.size()) + 2}));
  tensor.text(8, std::to_string(width)).text(8, std::to_string(height));
  for (const std::string& png : pngs) tensor.text(8, png);
  return tensor_event(time, tag, tensor, with_metadata ? &kind : nullptr);
}

Protobuf histogram_event(const EventTime& time, std::string_view tag, std::span<const double> counts,
                         std::span<const double> edges, bool with_metadata) {
  static const Protobuf kind = metadata("histograms", TENSOR);
  std::string rows;  // left, right, count
  for (std::size_t i = 0; i < counts.size(); ++i)
    for (const double number : {edges[i], edges[i + 1], counts[i]})
      rows += little_endian(std::bit_cast<std::uint64_t>(number));
  const Protobuf sizes = shape({static_cast<std::int64_t>(counts.size()), 3});
  const Protobuf tensor = Protobuf().whole(1, DOUBLE).message(2, sizes).text(4, rows);
  return tensor_event(time, tag, tensor, with_metadata ? &kind : nullptr);
}

Protobuf session_start_event(double wall_time, const Hyperparameters& hyperparameters, std::string_view group) {
  Protobuf session;
  for (const auto& [key, value] : hyperparameters)
    session.message(1, Protobuf().text(1, valid_utf8(key)).message(2, json_value(value)));
  session.text(4, group).number(5, wall_time);
  return hyperparameter_event(wall_time, "_hparams_/session_start_info", Protobuf().message(3, session));
}

Protobuf session_end_event(double wall_time, SessionStatus status) {
  const Protobuf session = Protobuf().whole(1, static_cast<std::int64_t>(status)).number(2, wall_time);
  return hyperparameter_event(wall_time, "_hparams_/session_end_info", Protobuf().message(4, session));
}

}  // namespace composer::loggers
