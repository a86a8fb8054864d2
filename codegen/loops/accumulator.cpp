#include "codegen/loops/accumulator.h"

#include <cmath>
#include <limits>

#include "guards/result.h"

namespace framejit::codegen {
namespace {

// f64 bits as they are; f32 is rounded from the long double itself.
Element rounded(DType type, long double number) {
  if (type == DType::kF32)
    return std::bit_cast<uint32_t>(static_cast<float>(number));
  return std::bit_cast<uint64_t>(static_cast<double>(number));
}

int64_t lowest(DType type) {
  switch (type) {
    case DType::kI8:
      return std::numeric_limits<int8_t>::min();
    case DType::kI16:
      return std::numeric_limits<int16_t>::min();
    case DType::kI32:
      return std::numeric_limits<int32_t>::min();
    case DType::kI64:
      return std::numeric_limits<int64_t>::min();
    default:
      return 0;  // b8, u8
  }
}

int64_t highest(DType type) {
  return type == DType::kBool ? 1
         : type == DType::kU8 ? 255
                              : -(lowest(type) + 1);
}

Element identity(Combiner combiner, DType type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (combiner) {
    case Combiner::kProduct:
    case Combiner::kAll:
      return element_of_integer(type, 1);
    case Combiner::kMin:
      return is_float(type) ? element_of(type, kInfinity)
                            : element_of_integer(type, highest(type));
    case Combiner::kMax:
      return is_float(type) ? element_of(type, -kInfinity)
                            : element_of_integer(type, lowest(type));
    default:
      return element_of_integer(type, 0);
  }
}

Element add_place(Combiner combiner, DType type,
                  const std::vector<Element>& elements, Element* best) {
  Combiner values =
      combiner == Combiner::kArgMin ? Combiner::kMin : Combiner::kMax;
  *best = identity(values, type);
  Element place = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    Element element = elements[i];
    if (is_nan(type, *best)) break;
    Element lower = values == Combiner::kMin ? element : *best;
    Element upper = values == Combiner::kMin ? *best : element;
    bool better = is_nan(type, element) || evaluate(ScalarOp::kLt, DType::kBool,
                                                    type, {lower, upper, 0});
    // The first of all, though it is no better than none.
    if (i > 0 && !better) continue;
    *best = element;
    place = i;
  }
  return place;
}

}  // namespace

Accumulator::Accumulator(Combiner combiner, DType type)
    : Accumulator(combiner, type, identity(combiner, type)) {}

Accumulator::Accumulator(Combiner combiner, DType type, Element first)
    : combiner_(combiner), type_(type), bits_(first) {
  if (is_float(type)) number_ = as_double(type, first);
}

void Accumulator::add(Element element) {
  if (!is_float(type_)) {
    const auto operation = combiner_row(combiner_).operation;
    FJ_CHECK(operation, "not a combiner of prefixes");
    bits_ = evaluate(*operation, type_, type_, {bits_, element, 0});
    return;
  }
  long double other = as_double(type_, element);
  switch (combiner_) {
    case Combiner::kSum:
      number_ += other;
      break;
    case Combiner::kProduct:
      number_ *= other;
      break;
    case Combiner::kMin:
      if (std::isnan(other) || other < number_) number_ = other;
      break;
    case Combiner::kMax:
      if (std::isnan(other) || other > number_) number_ = other;
      break;
    default:
      FJ_CHECK(false, "not a combiner of prefixes");
  }
}

Element Accumulator::value() const {
  return is_float(type_) ? rounded(type_, number_) : bits_;
}

std::array<Element, 2> combine(Combiner combiner, DType type,
                               const std::vector<Element>& elements) {
  switch (combiner) {
    case Combiner::kArgMin:
    case Combiner::kArgMax: {
      Element best;
      Element place = add_place(combiner, type, elements, &best);
      return {best, place};
    }
    case Combiner::kWelford: {
      long double sum = 0, squares = 0;
      for (Element element : elements) sum += as_double(type, element);
      long double mean = elements.empty() ? 0 : sum / elements.size();
      for (Element element : elements) {
        long double distance = as_double(type, element) - mean;
        squares += distance * distance;
      }
      return {rounded(type, mean), rounded(type, squares)};
    }
    case Combiner::kSoftmaxSum: {
      Accumulator maximum(Combiner::kMax, type);
      for (Element element : elements) maximum.add(element);
      long double top = as_double(type, maximum.value()), sum = 0;
      for (Element element : elements)
        sum += std::exp(as_double(type, element) - top);
      return {maximum.value(), rounded(type, sum)};
    }
    default: {
      Accumulator accumulator(combiner, type);
      for (Element element : elements) accumulator.add(element);
      return {accumulator.value(), 0};
    }
  }
}

}  // namespace framejit::codegen
