/* The limits of the chat templates' language, for those that test them. What they refuse is RF_E_SYNTAX when a
 * template is made, RF_E_NO_MEMORY when it is rendered. docs/chat.md lists them. */
#ifndef RF_TEMPLATE_TEMPLATE_H
#define RF_TEMPLATE_TEMPLATE_H

#define RF_TPL_SOURCE_BYTES_MAX (4u << 20)
#define RF_TPL_TREE_BYTES_MAX (512u << 20) /* what is made of a source */
#define RF_TPL_NESTING_MAX 200             /* brackets, blocks and chains of operators in a source */
#define RF_TPL_DATA_DEPTH_MAX 200          /* lists and objects in the variables */
#define RF_TPL_DEPTH_MAX 1000              /* expressions, statements and macro calls that are open at once */
#ifndef RF_TPL_STEPS_MAX                   /* the fuzzer has fewer */
#define RF_TPL_STEPS_MAX 20000000u
#endif
#define RF_TPL_TEXT_BYTES_MAX (32u << 20) /* one text, and the rendered one */
#define RF_TPL_MEMORY_BYTES_MAX (256u << 20)
#define RF_TPL_RANGE_MAX 100000 /* as jinja2's sandbox */

#endif
