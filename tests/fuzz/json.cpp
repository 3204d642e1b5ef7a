// A text as JSON of any form: the reader refuses or accepts, and what it accepts as a string can be written and read.
#include "composer/formats/json_reader.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {  // {text: [integers]}
    formats::JsonReader json(text, "input");
    json.begin_object();
    std::string key;
    while (json.next_key(key)) {
      const std::string quoted = formats::json_quoted(key);
      formats::JsonReader again(quoted, "again");
      fuzz::require(again.string() == key);
      again.end();
      json.begin_array();
      while (json.next_item()) fuzz::require(json.integer() >= 0);
    }
    json.end();
  } catch (const CheckpointError&) {
  }
  try {
    formats::JsonReader json(text, "input");
    const std::string value = json.string();
    json.end();
    fuzz::require(!formats::json_quoted(value).empty());
  } catch (const CheckpointError&) {
  }
  return 0;
}
