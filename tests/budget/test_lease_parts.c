/* Parts of leases: what a process lends to another, and what becomes of it when one of them ends. */
#include "lease_stage.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

RF_TEST(lease, a_part_lies_within_its_lenders_promise) {
    struct stage stage;
    struct puppet parent, child, second;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    char part[128];
    stage_open(&stage);
    start(&stage, &parent);
    start(&stage, &child);
    start(&stage, &second);
    puppet_ask(&parent, "open 90%%");
    puppet_ask(&parent, "hold 100000");
    snprintf(part, sizeof part, "%s", puppet_ask(&parent, "lend 300000") + 3);
    RF_ASSERT_CONTAINS(part, "part=");
    RF_ASSERT_CONTAINS(part, ":300000");
    const char *reply = puppet_ask(&child, "open %s", part);
    RF_ASSERT_INT(number(reply, "promised"), 300000);
    RF_ASSERT_INT(number(reply, "floor"), 100000); /* the lender's, not 30% */
    RF_ASSERT_CONTAINS(puppet_ask(&second, "open %s", part), "RF_E_BUSY");
    RF_ASSERT_CONTAINS(puppet_ask(&parent, "reclaim %s", part), "RF_E_BUSY");
    RF_ASSERT_CONTAINS(puppet_ask(&parent, "lend 500001"), "RF_E_BUDGET");
    puppet_ask(&child, "hold 250000");
    struct survey seen = survey(stage.dir);
    RF_ASSERT(seen.leases == 2 && seen.parts == 1 && seen.root_promised == 900000 && seen.held == 350000);
    RF_ASSERT_OK(try_open(&stage, "95%", &lease, &terms));
    RF_ASSERT_INT(terms.others_promised_bytes, 900000);
    RF_ASSERT_INT(terms.free0_bytes, 650000 - 550000);
    RF_ASSERT_INT(terms.promised_bytes, 50000);
    rf_lease_close(&lease);
    /* A smaller budget cannot take back what was lent. */
    RF_ASSERT_INT(number(puppet_ask(&parent, "renew 10%%"), "promised"), 300000);
    RF_ASSERT_INT(number(puppet_ask(&parent, "renew 90%%"), "promised"), 900000);
    /* The child leaves: the part can be used again, and then be taken back. */
    puppet_kill(&child);
    atomic_store(&stage.gpu->used[2], 0);
    RF_ASSERT_INT(number(puppet_ask(&second, "open %s", part), "promised"), 300000);
    puppet_ask(&second, "close");
    RF_ASSERT_INT(number(puppet_ask(&parent, "reclaim %s", part), "bytes"), 300000);
    RF_ASSERT_CONTAINS(puppet_ask(&parent, "reclaim %s", part), "RF_E_NOT_FOUND");
    RF_ASSERT_CONTAINS(puppet_ask(&second, "open %s", part), "RF_E_NOT_FOUND");
    puppet_end(&second);
    puppet_end(&parent);
    stage_close(&stage);
}

/* A lender that shrinks under what it holds and lent: the part may still be taken, so nobody else is promised it. */
RF_TEST(lease, what_is_lent_counts_beside_what_is_held) {
    struct stage stage;
    struct puppet parent, child, other;
    char part[128];
    stage_open(&stage);
    start(&stage, &parent);
    start(&stage, &child);
    start(&stage, &other);
    puppet_ask(&parent, "open 70%%");
    puppet_ask(&parent, "hold 400000");
    snprintf(part, sizeof part, "%s", puppet_ask(&parent, "lend 300000") + 3);
    RF_ASSERT_INT(number(puppet_ask(&parent, "renew 10%%"), "promised"), 300000);
    const char *reply = puppet_ask(&other, "open 80%%");
    RF_ASSERT_INT(number(reply, "others_promised"), 700000);
    RF_ASSERT_INT(number(reply, "promised"), 100000);
    puppet_ask(&child, "open %s", part);
    puppet_ask(&child, "hold 300000");
    RF_ASSERT_INT(number(puppet_ask(&other, "renew 80%%"), "promised"), 100000);
    puppet_end(&other);
    puppet_end(&child);
    puppet_end(&parent);
    stage_close(&stage);
}

RF_TEST(lease, a_part_outlives_its_lender) {
    struct stage stage;
    struct puppet parent, child;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    char part[128], unused[128];
    stage_open(&stage);
    start(&stage, &parent);
    start(&stage, &child);
    puppet_ask(&parent, "open 70%%");
    snprintf(part, sizeof part, "%s", puppet_ask(&parent, "lend 200000") + 3);
    snprintf(unused, sizeof unused, "%s", puppet_ask(&parent, "lend 100000") + 3);
    puppet_ask(&child, "open %s", part);
    RF_ASSERT_INT(number(puppet_ask(&child, "renew 5%%"), "promised"), 50000);
    RF_ASSERT_INT(number(puppet_ask(&child, "renew 90%%"), "promised"), 200000); /* never more than the part */
    puppet_kill(&parent);
    struct survey seen = survey(stage.dir);
    RF_ASSERT(seen.leases == 1 && seen.parts == 0 && seen.root_promised == 200000);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, &terms));
    RF_ASSERT_INT(terms.promised_bytes, 500000);
    rf_lease_close(&lease);
    RF_ASSERT_STATUS(try_open(&stage, unused, &lease, &terms), RF_E_NOT_FOUND);
    RF_ASSERT_INT(number(puppet_ask(&child, "renew 10%%"), "promised"), 100000);
    /* What it gave back may be somebody else's by now. */
    RF_ASSERT_INT(number(puppet_ask(&child, "renew 90%%"), "promised"), 100000);
    puppet_end(&child);
    stage_close(&stage);
}

RF_TEST(lease, parts_of_parts) {
    struct stage stage;
    struct puppet top, middle, bottom;
    char part[128], inner[128];
    stage_open(&stage);
    start(&stage, &top);
    start(&stage, &middle);
    start(&stage, &bottom);
    puppet_ask(&top, "open 70%%");
    snprintf(part, sizeof part, "%s", puppet_ask(&top, "lend 300000") + 3);
    puppet_ask(&middle, "open %s", part);
    snprintf(inner, sizeof inner, "%s", puppet_ask(&middle, "lend 200000") + 3);
    RF_ASSERT_INT(number(puppet_ask(&bottom, "open %s", inner), "promised"), 200000);
    RF_ASSERT_CONTAINS(puppet_ask(&bottom, "lend 1"), "RF_E_UNSUPPORTED");
    RF_ASSERT_INT(survey(stage.dir).root_promised, 700000);
    /* The middle dies: its grandchild still lies within the top's promise, and keeps the part busy. */
    puppet_kill(&middle);
    RF_ASSERT_INT(survey(stage.dir).root_promised, 700000);
    RF_ASSERT_CONTAINS(puppet_ask(&top, "reclaim %s", part), "RF_E_BUSY");
    puppet_kill(&top);
    RF_ASSERT_INT(survey(stage.dir).root_promised, 200000);
    puppet_end(&bottom);
    stage_close(&stage);
}

/* One generation in 256 begins with the letters that elsewhere announce a descriptor. */
RF_TEST(lease, a_part_of_any_name_is_found) {
    struct stage stage;
    struct puppet borrower;
    struct rf_lease *lease;
    char part[96] = "";
    stage_open(&stage);
    start(&stage, &borrower);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, NULL));
    for (int i = 0; i < 100000 && !strstr(part, "-fd"); i++) {
        if (part[0]) RF_ASSERT_OK(rf_lease_reclaim(lease, part, NULL));
        RF_ASSERT_OK(rf_lease_lend(lease, 1000, part, sizeof part));
    }
    RF_ASSERT_CONTAINS(part, "-fd");
    RF_ASSERT_INT(number(puppet_ask(&borrower, "open %s", part), "promised"), 1000);
    puppet_end(&borrower);
    rf_lease_close(&lease);
    stage_close(&stage);
}

/* A table has room for 1024 leases and parts. One more is refused, and the refusal leaves what is lent as it is. */
RF_TEST(lease, more_parts_than_the_table_has_room_for) {
    enum { MOST = 1024 };
    static char parts[MOST][96];
    struct stage stage;
    struct rf_lease *lease;
    char one_more[96] = "untouched";
    int count = 0;
    rf_status status = RF_OK;
    stage_open(&stage);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, NULL));
    while (count < MOST && !(status = rf_lease_lend(lease, 1, parts[count], sizeof parts[count]))) count++;
    RF_ASSERT_STATUS(status, RF_E_BUSY);
    RF_ASSERT_INT(count, MOST - 1);
    RF_ASSERT_CONTAINS(rf_error_text(), "all 1024 leases of");
    RF_ASSERT_STATUS(rf_lease_lend(lease, 1, one_more, sizeof one_more), RF_E_BUSY);
    RF_ASSERT_TEXT(one_more, "untouched");
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        RF_ASSERT_OK(rf_lease_reclaim(lease, parts[i], &bytes));
        RF_ASSERT_INT(bytes, 1);
    }
    RF_ASSERT_OK(rf_lease_lend(lease, 700000, one_more, sizeof one_more)); /* the failures left nothing lent */
    rf_lease_close(&lease);
    stage_close(&stage);
}

RF_TEST(lease, bad_parts) {
    struct stage stage;
    struct rf_lease *lease, *none = NULL;
    char part[128], other[160];
    stage_open(&stage);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, NULL));
    RF_ASSERT_STATUS(rf_lease_lend(lease, 0, part, sizeof part), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_lend(lease, 5, NULL, 0), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_lend(lease, 5, part, 10), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_lend(lease, 700001, part, sizeof part), RF_E_BUDGET);
    RF_ASSERT_CONTAINS(rf_error_text(), "RF_BUDGET");
    RF_ASSERT_OK(rf_lease_lend(lease, 700000, part, sizeof part)); /* the failures left nothing lent */
    RF_ASSERT_STATUS(rf_lease_reclaim(lease, "70%", NULL), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_reclaim(lease, "part=nonsense", NULL), RF_E_SYNTAX);
    RF_ASSERT_STATUS(rf_lease_reclaim(lease, NULL, NULL), RF_E_INVALID);
    snprintf(other, sizeof other, "%.*s:7", (int)(strchr(part, ':') - part), part);
    RF_ASSERT_STATUS(try_open(&stage, other, &none, NULL), RF_E_INVALID); /* of another size than was lent */
    RF_ASSERT_STATUS(try_open(&stage, "part=1-2-3:5", &none, NULL), RF_E_NOT_FOUND);
    RF_ASSERT(none == NULL);
    struct rf_budget_spec spec;
    RF_ASSERT_OK(rf_budget_parse(part, &spec));
    RF_ASSERT_STATUS(rf_lease_renew(lease, &spec, NULL), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_renew(lease, NULL, NULL), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_renew(NULL, &spec, NULL), RF_E_INVALID);
    rf_lease_close(&lease); /* with its part still lent */
    RF_ASSERT_STATUS(try_open(&stage, part, &none, NULL), RF_E_NOT_FOUND);
    rf_lease_close(&lease);
    rf_lease_close(NULL);
    stage_close(&stage);
}
