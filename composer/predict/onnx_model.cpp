#include "composer/predict/onnx_model.h"

#include "composer/core/error.h"
#include "composer/util/protobuf.h"

namespace composer::onnx {
namespace {

using util::Protobuf;

constexpr std::int64_t kIrVersion = 8;  // of opset 17

// Numbers of fields, from onnx.proto.
enum AttributeType : std::uint8_t { FLOAT = 1, INT = 2, STRING = 3, TENSOR = 4, INTS = 7 };

void put_tensor(Protobuf& into, const std::string& name, const at::Tensor& tensor) {
  const at::Tensor whole = tensor.detach().cpu().contiguous();
  for (const std::int64_t size : whole.sizes()) into.whole(1, size);
  into.whole(2, onnx_type(whole.scalar_type()));
  if (!name.empty()) into.text(8, name);
  into.text(9, {static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()});
}

void put_attribute(Protobuf& into, const Attribute& attribute) {
  into.text(1, attribute.name);
  struct Put {
    Protobuf& into;
    void operator()(float value) const { into.single(2, value).whole(20, FLOAT); }
    void operator()(std::int64_t value) const { into.whole(3, value).whole(20, INT); }
    void operator()(const std::string& value) const { into.text(4, value).whole(20, STRING); }
    void operator()(const at::Tensor& value) const {
      into.message(5, [&](Protobuf& tensor) { put_tensor(tensor, "", value); }).whole(20, TENSOR);
    }
    void operator()(const std::vector<std::int64_t>& values) const {
      for (const std::int64_t value : values) into.whole(8, value);
      into.whole(20, INTS);
    }
  };
  std::visit(Put{into}, attribute.value);
}

void put_operation(Protobuf& into, const Operation& operation, const std::string& name) {
  for (const std::string& input : operation.inputs) into.text(1, input);
  for (const std::string& output : operation.outputs) into.text(2, output);
  into.text(3, name).text(4, operation.name);
  for (const Attribute& attribute : operation.attributes)
    into.message(5, [&](Protobuf& one) { put_attribute(one, attribute); });
}

void put_value(Protobuf& into, const GraphValue& value) {
  into.text(1, value.name).message(2, [&](Protobuf& type) {
    type.message(1, [&](Protobuf& tensor) {
      tensor.whole(1, onnx_type(value.type)).message(2, [&](Protobuf& shape) {
        for (const Dimension& dimension : value.shape)
          shape.message(1, [&](Protobuf& one) {
            dimension.symbol.empty() ? one.whole(1, dimension.size) : one.text(2, dimension.symbol);
          });
      });
    });
  });
}

}  // namespace

std::int64_t onnx_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return 1;
    case at::kByte:
      return 2;
    case at::kChar:
      return 3;
    case at::kShort:
      return 5;
    case at::kInt:
      return 6;
    case at::kLong:
      return 7;
    case at::kBool:
      return 9;
    case at::kHalf:
      return 10;
    case at::kDouble:
      return 11;
    case at::kBFloat16:
      return 16;
    default:
      throw ConfigError("export_onnx: ONNX has no type for ", type,
                        "; use other types in forward(), or export_torchscript()");
  }
}

std::string onnx_bytes(const OnnxModel& model) {
  constexpr std::size_t kMost = (std::size_t{1} << 31) - (std::size_t{1} << 24);  // some is left for the graph
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : model.weights) bytes += tensor.nbytes();
  if (bytes > kMost)
    throw ConfigError("export_onnx: the weights have ", bytes, " bytes, and a file of ONNX can have ", kMost,
                      "; use export_torchscript()");
  Protobuf file;
  file.whole(1, kIrVersion).text(2, "libcomposer").text(3, COMPOSER_VERSION);
  file.message(7, [&](Protobuf& graph) {
    for (std::size_t i = 0; i < model.operations.size(); ++i)
      graph.message(1, [&](Protobuf& one) { put_operation(one, model.operations[i], "/" + std::to_string(i)); });
    graph.text(2, "main");
    for (const auto& [name, tensor] : model.weights)
      graph.message(5, [&](Protobuf& one) { put_tensor(one, name, tensor); });
    for (const GraphValue& value : model.inputs) graph.message(11, [&](Protobuf& one) { put_value(one, value); });
    for (const GraphValue& value : model.outputs) graph.message(12, [&](Protobuf& one) { put_value(one, value); });
  });
  file.message(8, [](Protobuf& opset) { opset.text(1, "").whole(2, kOpset); });
  return file.bytes();
}

}  // namespace composer::onnx
