#include "composer/loggers/event_file.h"

#include <array>
#include <cstring>
#include <type_traits>

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

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

#ifdef __x86_64__
// Uses the processor's instruction for CRC-32C, eight bytes at a time.
__attribute__((target("sse4.2"))) std::uint32_t crc32c_of_processor(std::string_view bytes) {
  std::uint64_t sum = ~0U;
  for (; bytes.size() >= sizeof(std::uint64_t); bytes.remove_prefix(sizeof(std::uint64_t))) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    sum = _mm_crc32_u64(sum, word);
  }
  auto rest = static_cast<std::uint32_t>(sum);
  for (const char byte : bytes) rest = _mm_crc32_u8(rest, static_cast<unsigned char>(byte));
  return ~rest;
}
#endif

template <class Unsigned>
void append_little_endian(std::string& bytes, Unsigned value) {
  std::array<char, sizeof(Unsigned)> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(value >> 8 * i);
  bytes.append(all.data(), all.size());
}

void append_masked_checksum(std::string& bytes, std::string_view of) {
  const std::uint32_t sum = crc32c(of);
  append_little_endian<std::uint32_t>(bytes, (sum >> 15 | sum << 17) + 0xA282EAD8);
}

Protobuf shape(std::initializer_list<std::int64_t> sizes) {
  Protobuf shape;
  for (const std::int64_t size : sizes) shape.message(2, [size](Protobuf& one) { one.whole(1, size); });
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

// Replaces the content of `event`.
template <class AddValue>
void put_event(Protobuf& event, const EventTime& time, const AddValue& add_value) {
  event.clear();
  event.number(1, time.wall_time);
  if (time.step != 0) event.whole(2, time.step);
  event.message(5, [&](Protobuf& summary) { summary.message(1, add_value); });
}

Protobuf tensor_event(const EventTime& time, std::string_view tag, const Protobuf& tensor, const Protobuf* metadata) {
  Protobuf event;
  put_event(event, time, [&](Protobuf& value) {
    value.text(1, tag).message(8, tensor);
    if (metadata != nullptr) value.message(9, *metadata);
  });
  return event;
}

// The metadata contains all data of hyperparameters.
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
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_of_processor(bytes);
#endif
  std::uint32_t sum = ~0U;
  for (const char byte : bytes) sum = kTable[(sum ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (sum >> 8);
  return ~sum;
}

void append_framed(std::string& bytes, const Protobuf& event) {
  const std::size_t begin = bytes.size();
  append_little_endian<std::uint64_t>(bytes, event.bytes().size());
  append_masked_checksum(bytes, std::string_view(bytes).substr(begin));
  bytes += event.bytes();
  append_masked_checksum(bytes, event.bytes());
}

Protobuf version_event(double wall_time) {
  return Protobuf().number(1, wall_time).text(3, "brain.Event:2").message(10, Protobuf().text(1, "libcomposer"));
}

// Writes a tensor of rank 0 in single precision: TensorBoard's data server shows no other scalars. The static objects
// here and below are never destroyed, because the logger of a trainer that is a global may write later.
void put_scalar(Protobuf& event, const EventTime& time, std::string_view tag, double value, bool with_metadata) {
  static const Protobuf& kind = *new Protobuf(metadata("scalars", SCALAR));
  put_event(event, time, [&](Protobuf& all) {
    all.text(1, tag).message(8, [&](Protobuf& tensor) {
      tensor.whole(1, FLOAT).text(2, "").single(5, static_cast<float>(value));  // the shape is empty
    });
    if (with_metadata) all.message(9, kind);
  });
}

void put_simple(Protobuf& event, const EventTime& time, std::string_view tag, double value) {
  put_event(event, time, [&](Protobuf& all) { all.text(1, tag).single(2, static_cast<float>(value)); });
}

Protobuf text_event(const EventTime& time, std::string_view tag, std::string_view markdown, bool with_metadata) {
  static const Protobuf& kind = *new Protobuf(metadata("text", TENSOR));
  const Protobuf tensor = Protobuf().whole(1, STRING).text(2, "").text(8, valid_utf8(markdown));
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
  static const Protobuf& kind = *new Protobuf(metadata("histograms", TENSOR));
  std::string rows;  // left edge, right edge, count
  for (std::size_t i = 0; i < counts.size(); ++i)
    for (const double number : {edges[i], edges[i + 1], counts[i]})
      append_little_endian(rows, std::bit_cast<std::uint64_t>(number));
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
