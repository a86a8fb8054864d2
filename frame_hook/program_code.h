// Which code of the program a code object stands for, for messages.
//
// What a compiled module calls is a small function of this package that calls
// the module (framejit/_module.py). Whoever reads a message knows neither it
// nor its parameters: it goes by the name and place of the module's forward,
// and its arguments by the names of forward's parameters. Looked up when a text
// is made, so it is the forward of then. Nothing here decides what is compiled.
//
// Likewise what a decorator made of a function (it has a __wrapped__): its code
// is the decorator's, and one for all that it decorates, so it stands for the
// function where that is at hand (DecoratedNames).
#pragma once

#include <string>

#include "frame_hook/py_ref.h"

namespace framejit {

// `code` is fun(object, *args, **kwargs), and stands for the forward of `owner`
// (a class) or for `owner` (a Python function), which is held weakly.
// first_passed: the parameter of that function that args[0] is. False: an error
// is set.
bool stand_for(PyObject* code, PyObject* owner, int first_passed);

// Code made from `code` (the rest of it behind a break) stands for the same.
void stand_for_same(PyObject* made, PyObject* code);

// The code object of the program's function; `code` itself where it stands for
// nothing. Sets no error.
Ref program_code(PyObject* code);
// Is program_code() another one?
bool stands_for_other(PyObject* code);
// Is it fun(object, *args, **kwargs) itself, or a decorator's fun(*args,
// **kwargs), whose arguments are the program's?
bool passes_arguments_on(PyObject* code);
int first_passed_parameter(PyObject* code);

// "Net.forward", and "Net.forward (model.py:31)".
std::string program_name(PyObject* code);
std::string describe_code(PyObject* code);

// The function that decorators were put on: the end of the __wrapped__s.
// Empty: `function` is none that a decorator made.
Ref decorated_function(PyObject* function);
// "sample (model.py:31)", of the decorated function where there is one.
std::string describe_function(PyObject* function);

// While it lives, and on its thread, the code of a function that a decorator
// made stands for the one that it was put on. For messages alone: the names of
// what is remembered between captures are those without it.
class DecoratedNames {
 public:
  explicit DecoratedNames(PyObject* function);
  // owner: a decorated_function(); null: none.
  DecoratedNames(PyObject* code, PyObject* owner);
  ~DecoratedNames();
  DecoratedNames(const DecoratedNames&) = delete;
  DecoratedNames& operator=(const DecoratedNames&) = delete;

 private:
  friend Ref owner_in_names(PyObject* code);
  PyObject* code_;
  Ref owner_;
  DecoratedNames* outer_;
};

}  // namespace framejit
